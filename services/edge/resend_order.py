"""Which settlements are sent again next, and how many at once. Pure; the delivery uses it.

One that billing cannot take must not stand in the way of all others: a call that fails halves the next one, down to one
settlement, which is then set aside for the rest of the round. So is one that billing puts off. Calls that succeed grow again.
"""

import itertools
from collections.abc import Iterable

from services.edge.settlement import Settlement


class ResendOrder:
    """The order of one round after another."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = most
        self._aside: set[str] = set()

    def begin(self) -> None:
        """A new round: what was set aside has its turn again."""
        self._aside.clear()

    def batch(self, waiting: Iterable[Settlement]) -> list[Settlement]:
        """The next settlements to send; none at the end of the round."""
        turn = (entry for entry in waiting if entry.reservation_id not in self._aside)
        return list(itertools.islice(turn, self._size))

    def answered(self, put_off: Iterable[Settlement]) -> None:
        """A call was answered; these of its settlements are to come again later."""
        self._aside.update(entry.reservation_id for entry in put_off)
        self._size = min(self._size * 2, self._most)

    def failed(self, batch: list[Settlement]) -> None:
        """A call was not answered, or with an error."""
        if len(batch) == 1:
            self._aside.add(batch[0].reservation_id)
        self._size = max(len(batch) // 2, 1)
