"""Pauses that grow, each a random part of its bound, so that many who wait for the same thing do not return as one. Pure."""

from random import Random

# Seeded by the system; its quality matters to nobody.
_chance = Random()  # noqa: S311


class Backoff:
    """The pauses of one who tries again."""

    def __init__(self, first_s: float, longest_s: float, chance: Random = _chance) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._bound_s = first_s
        self._chance = chance

    def next_s(self) -> float:
        """The next pause: at least half of its bound, which then doubles."""
        bound_s, self._bound_s = self._bound_s, min(self._bound_s * 2, self._longest_s)
        return self._chance.uniform(bound_s / 2, bound_s)

    def reset(self) -> None:
        """Begin again."""
        self._bound_s = self._first_s
