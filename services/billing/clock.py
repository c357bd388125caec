"""Time, as billing sees it: an argument of everything that needs it. Anything in billing may import it.

Wall time names moments (price versions, minutes, days) and may be stepped by an administrator. Monotonic time measures
leases and is never stepped, but means nothing in another process.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Both times in whole milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment of this process."""


class SystemClock:
    """The machine's."""

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See Clock."""
        return time.monotonic_ns() // 1_000_000
