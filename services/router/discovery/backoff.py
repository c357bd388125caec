"""How long to wait after a failure: twice as long each time, up to a bound, and never all at once. Pure; sources use it."""

from random import Random


class Backoff:
    """Of one source."""

    def __init__(self, first_s: float, longest_s: float, chance: Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._chance = chance
        self._next_s = first_s

    def next_s(self) -> float:
        """The wait after one more failure: between half of what is due and all of it."""
        due = self._next_s
        self._next_s = min(due * 2, self._longest_s)
        return due * (0.5 + self._chance.random() / 2)

    def reset(self) -> None:
        """It went well."""
        self._next_s = self._first_s
