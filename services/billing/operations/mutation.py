"""What operators' mutations share: each is done once, by the id that its caller made. Pure; the three nouns import it.

A mutation that was done is remembered with its content and its answer: the same content gets the same answer, other content
a conflict that names the field. One that was not done stores nothing, so that it may be tried again with the same id.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from google.protobuf.message import Message
from speedinfer.billing.v1 import account_pb2 as pb

from services.billing.books import Books
from services.billing.content import canonical, first_difference
from services.billing.identity import Age, age
from services.billing.rules import Rules
from services.billing.store.port import DoneOperation, Names


@dataclass(eq=False)
class Refused(Exception):
    """Why a mutation is not done. An outcome: it is caught in `apply` and never seen outside."""

    status: pb.MutationStatus.ValueType
    field: str
    message: str


def invalid(field: str, message: str) -> Refused:
    """A value is impossible."""
    return Refused(pb.MUTATION_STATUS_INVALID, field, message)


def not_found(field: str, message: str) -> Refused:
    """What the item refers to does not exist."""
    return Refused(pb.MUTATION_STATUS_NOT_FOUND, field, message)


class Mutation(ABC):
    """One item of a mutating call. Subclasses say what to load and what to do."""

    kind: ClassVar[str]
    answer_type: ClassVar[Any]

    def __init__(self, item: Any, rules: Rules) -> None:
        self.item = item
        self.rules = rules

    def name(self, names: Names) -> None:
        """See Operation."""
        names.add(self.needs())
        names.operations.add(self.item.operation_id)

    def apply(self, books: Books) -> Message:
        """See Operation."""
        operation_id = self.item.operation_id
        try:
            judged = age(operation_id, books.now_ms, self.rules.id_age_days)
            if judged is Age.MALFORMED:
                raise invalid("operation_id", "the operation id is not a UUIDv7")
            if judged is Age.EXPIRED:
                raise Refused(
                    pb.MUTATION_STATUS_ID_EXPIRED, "operation_id", "the operation id is older than ids are kept"
                )
            if (done := books.operation(operation_id)) is not None:
                return self._again(done)
            if judged is Age.FUTURE:
                raise invalid("operation_id", "the operation id is of the future")
            answer = self.perform(books)
        except Refused as refused:
            return self._answer(status=refused.status, field=refused.field, message=refused.message)
        books.add_operation(
            DoneOperation(
                operation_id,
                self.kind,
                canonical(self.item),
                answer.SerializeToString(deterministic=True),
                books.now_ms,
            )
        )
        return answer

    @abstractmethod
    def needs(self) -> Names:
        """What must be loaded besides the operation."""

    @abstractmethod
    def perform(self, books: Books) -> Message:
        """Judge (raising Refused before anything is changed), change, answer."""

    def done(self, **parts: Any) -> Message:
        """The answer of a mutation that was done."""
        return self._answer(status=pb.MUTATION_STATUS_DONE, **parts)

    def _again(self, done: DoneOperation) -> Message:
        if done.kind != self.kind:
            raise Refused(
                pb.MUTATION_STATUS_CONFLICT, "operation_id", f"the operation id was used for another kind: {done.kind}"
            )
        if field := first_difference(done.content, self.item):
            raise Refused(pb.MUTATION_STATUS_CONFLICT, field, f"the operation id was used with another {field}")
        answer: Message = self.answer_type.FromString(done.answer)
        return answer

    def _answer(self, **parts: Any) -> Message:
        answer: Message = self.answer_type(operation_id=self.item.operation_id, **parts)
        return answer
