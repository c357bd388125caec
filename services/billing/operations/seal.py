"""Store a seal. It was made and signed beside the writer, of what was committed. Pure."""

from dataclasses import dataclass

from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import Int64Value

from services.billing.books import Books
from services.billing.seal import Seal
from services.billing.store.port import Names


@dataclass(frozen=True, slots=True)
class AddSeal:
    """See above. Answers its number."""

    seal: Seal

    def name(self, names: Names) -> None:
        """See Operation."""

    def apply(self, books: Books) -> Message:
        """See Operation."""
        books.changes.seals.append(self.seal)
        return Int64Value(value=self.seal.number)
