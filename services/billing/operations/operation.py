"""What the engine takes: a record that knows what it needs and what it does. Pure; the engine and operations import it."""

from typing import Protocol

from google.protobuf.message import Message

from services.billing.books import Books
from services.billing.store.port import Names


class Operation(Protocol):
    """One item of a call. It keeps nothing between attempts: a batch that failed may be applied again."""

    def name(self, names: Names) -> None:
        """Add what must be loaded."""

    def apply(self, books: Books) -> Message:
        """Judge, then change the books, then answer. An exception is a bug, and undoes the whole attempt."""
