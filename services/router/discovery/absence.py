"""How often in a row it was said that there is no such name. Pure; the sources that ask resolvers use it."""

# Resolvers say it in their bad moments, too.
LOOKS_TO_BELIEVE = 3


class Absence:
    """Of one name."""

    def __init__(self) -> None:
        self._times = 0

    def is_believed(self) -> bool:
        """Note that it was said once more; whether that is often enough."""
        self._times = min(self._times + 1, LOOKS_TO_BELIEVE)
        return self._times >= LOOKS_TO_BELIEVE

    def forget(self) -> None:
        """Something else was said."""
        self._times = 0
