"""Where registrations outlive the process, and where several routers find one another. Implemented beside it; the registrar and
the follower use it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class StoreError(Exception):
    """It is not known to be stored, or cannot be read now; the text is for operators, and holds no secret."""


@dataclass(frozen=True, slots=True)
class Record:
    """One stored worker."""

    # The registration as it was written; holds secrets.
    document: Mapping[str, Any]
    # When its id was first registered, in seconds since the epoch.
    registered_at_s: float
    draining: bool = False
    # The registry's version that this record came with; 0 where nobody else changes it.
    version: int = 0

    @property
    def worker_id(self) -> str:
        """Its id, also of a registration that is none."""
        return str(self.document.get("worker_id"))


@dataclass(frozen=True, slots=True)
class Picture:
    """The registry at one moment."""

    version: int
    # All ids, whether changed or not.
    worker_ids: frozenset[str]
    # What changed since the version that was asked about.
    changed: Sequence[Record]


class Store(Protocol):
    """Registrations, one by one: they are few and change seldom. Every change is durable when it is answered. StoreError."""

    @property
    def is_reachable(self) -> bool:
        """Whether it could be asked when it was last asked."""

    async def open(self) -> None:
        """Make it ready. ConfigurationError if it cannot be had, or is not exactly as this program has it."""

    async def load(self, since: int = -1) -> Picture:
        """What there is now; `since`: the documents only of what is newer. ConfigurationError if it cannot be read."""

    async def put(self, record: Record) -> Record:
        """Add or replace one, not draining; as it is stored, with the time when its id was first registered."""

    async def drain(self, worker_id: str) -> Record | None:
        """Mark one as draining; as it is stored, or None if there is none."""

    async def remove(self, worker_id: str) -> bool:
        """Forget one; False if there is none."""

    async def close(self) -> None:
        """Let go of it; a second time does nothing."""


@dataclass(frozen=True, slots=True)
class Member:
    """What one router tells the others; `share.py` says what it is for."""

    router_id: str
    # The registry's version of which it has taken up all.
    version: int
    # Whom it sees, in short.
    agreed: str
    # It takes nothing new.
    leaving: bool
    # Worker id -> requests that run there above this router's share.
    excess: Mapping[str, int] = field(default_factory=dict)
    # Worker id -> requests that still run on workers that drain.
    draining: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """What a router sees when it looks."""

    version: int
    # The routers that are there, itself among them.
    members: Sequence[Member]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a router found of a worker: a word of `hearsay.py`."""

    worker_id: str
    # The version of the registration that it is about.
    version: int
    word: str


class SharedStore(Store, Protocol):
    """One that several routers share. After a StoreError of any method it has to be connected again."""

    @property
    def stirred(self) -> asyncio.Event:
        """Set when something was heard, or the connection was lost; whoever waits for it clears it."""

    async def connect(self) -> None:
        """Make the connections anew."""

    async def look(self, me: Member, lease_s: float) -> Look:
        """Say that this router is there for so long, then read who is."""

    async def leave(self, router_id: str) -> None:
        """This router is there no more."""

    async def stir(self) -> None:
        """Have all routers look."""

    async def tell(self, router_id: str, verdicts: Sequence[Verdict]) -> None:
        """Tell all routers; who does not listen just now never hears it."""

    def heard(self) -> Sequence[Verdict]:
        """What other routers told since this was last asked."""
