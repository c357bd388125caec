"""Whether a router that is listened to is silent. Pure; `relay_link.py` keeps one for each link. docs/decisions/0019 says why.

Invariants: nobody is silent who was not asked, and had WAIT_S to answer while we ourselves ran; whatever is heard ends a
silence at once. Times are of any clock that only goes forward.
"""

from enum import Enum

# How often to look.
TICK_S = 0.1
# Nothing was heard for so long: ask.
ASK_AFTER_S = 0.5
# And for so long after that: silent.
WAIT_S = 0.5
# A look that comes so long after the last one shows that we stood still: what was said meanwhile may not be read yet.
STOOD_STILL_S = 0.3


class Verdict(Enum):
    """What a look came to."""

    NOTHING = 0
    # It is to be asked whether it is there.
    ASK = 1
    # It is silent from now on.
    SILENT = 2
    # It was silent, and is no longer.
    BACK = 3


class Silence:
    """What was heard of one router, and when."""

    def __init__(self, now_s: float) -> None:
        self._looked_s = now_s
        # From when on nothing was heard.
        self._since_s = now_s
        self._heard = False
        self._asked_s: float | None = None
        self._silent = False

    @property
    def is_silent(self) -> bool:
        """Nothing was heard of it for too long, up to now."""
        return self._silent and not self._heard

    def heard(self) -> None:
        """Something came from it."""
        self._heard = True

    def look(self, now_s: float) -> Verdict:
        """To be called every TICK_S."""
        stood_still = now_s - self._looked_s > STOOD_STILL_S
        self._looked_s = now_s
        if self._heard:
            return self._begin_anew(now_s)
        if self._silent:
            return Verdict.NOTHING
        if stood_still:
            self._since_s = now_s
            if self._asked_s is not None:
                self._asked_s = now_s
            return Verdict.NOTHING
        if self._asked_s is None:
            if now_s - self._since_s < ASK_AFTER_S:
                return Verdict.NOTHING
            self._asked_s = now_s
            return Verdict.ASK
        if now_s - self._asked_s < WAIT_S:
            return Verdict.NOTHING
        self._silent = True
        return Verdict.SILENT

    def _begin_anew(self, now_s: float) -> Verdict:
        was_silent = self._silent
        self._since_s, self._heard, self._asked_s, self._silent = now_s, False, None, False
        return Verdict.BACK if was_silent else Verdict.NOTHING
