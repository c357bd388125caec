"""Where registrations outlive the process. Implemented beside it; the registrar uses it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """One stored worker."""

    # The registration as it was written; holds secrets.
    document: Mapping[str, Any]
    # When its id was first registered, in seconds since the epoch.
    registered_at_s: float
    draining: bool = False


class Store(Protocol):
    """All records at once: they are few and change seldom."""

    def load(self) -> list[Record]:
        """What was saved last; empty at first. ConfigurationError if it cannot be read."""

    def save(self, records: list[Record]) -> None:
        """Replace everything; on return it is durable. OSError if it cannot be written."""
