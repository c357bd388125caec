"""What a source of workers is. Pure; the sources implement it, and the finder uses them.

A source says what is there now, as a whole set, each time it has looked; or that it does not know, which changes nothing. What
is made of it is the finder's business alone, so that the rules stand once.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """One that is there: a numeric address, a port, and what tells it apart from the others (empty: its address does)."""

    host: str
    port: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Unseen:
    """It is not known what is there. `why` goes to the log: our own words, without what a server said."""

    why: str


Sighting = frozenset[Found] | Unseen


class Source(Protocol):
    """One place to look at."""

    @property
    def title(self) -> str:
        """What operators know it by, to be read after "found by": `the name workers.internal`."""

    def sightings(self) -> AsyncGenerator[Sighting, None]:
        """Look, again and again, until it is closed. It waits between looks by itself, and bounds each. Failures of what
        is foreign are `Unseen`."""
