"""How many requests may be tried on a second worker: a share of all, so that a storm of failures is not doubled. Pure; dispatch
owns one.

Every request puts a part of a retry into the budget, up to its size; every retry takes a whole one out. Where it is empty, the
first failure is the answer. A second dispatch to the same worker that cannot have generated anything (a stale connection, a
refused bound) is no retry.
"""


class RetryBudget:
    """A bucket of retries."""

    def __init__(self, share: float, size: float) -> None:
        """`share`: retries a request, such as 0.2. `size`: how many may be spent at once after quiet times."""
        self._share = share
        self._size = size
        self._left = size

    def earn(self) -> None:
        """A request came."""
        self._left = min(self._left + self._share, self._size)

    def spend(self) -> bool:
        """Take one retry. False if there is none."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
