"""A settlement: what is charged, as a value, as a line of the outbox and as billing's message. Pure; edge modules import it."""

from dataclasses import dataclass

import orjson
from speedinfer.billing.v1.reservation_pb2 import Ending, SettleItem
from speedinfer.common.v1.context_pb2 import RequestContext
from speedinfer.common.v1.usage_pb2 import Usage

MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Settlement:
    """The charge of one request: the counts that its worker reported, and who reported them."""

    reservation_id: str
    prompt_tokens: int
    # None where the worker did not report it (embeddings; no cache).
    completion_tokens: int | None
    cached_prompt_tokens: int | None
    worker_id: str
    attempts: int
    ending: int
    traceparent: str = ""

    def usage(self) -> Usage:
        """The counts as a message."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.cached_prompt_tokens,
            completion_tokens=self.completion_tokens,
        )

    def item(self) -> SettleItem:
        """What billing is sent; the same whenever it is sent."""
        return SettleItem(
            context=RequestContext(request_id=self.reservation_id, attempt=self.attempts, traceparent=self.traceparent),
            reservation_id=self.reservation_id,
            usage=self.usage(),
            worker_id=self.worker_id,
            attempts=self.attempts,
            ending=Ending.ValueType(self.ending),
        )

    def line(self) -> bytes:
        """One line of the outbox."""
        return orjson.dumps({"settle": self}) + b"\n"


def make(
    reservation_id: str, usage: Usage, worker_id: str, attempts: int, ending: Ending.ValueType, traceparent: str = ""
) -> Settlement:
    """The settlement of a usage message."""
    return Settlement(
        reservation_id=reservation_id,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens if usage.HasField("completion_tokens") else None,
        cached_prompt_tokens=usage.cached_prompt_tokens if usage.HasField("cached_prompt_tokens") else None,
        worker_id=worker_id,
        attempts=attempts,
        ending=int(ending),
        traceparent=traceparent,
    )


def is_complete(usage: Usage, *, with_completion: bool) -> bool:
    """Whether a usage message can be charged: the counts are there and possible."""
    if not usage.HasField("prompt_tokens") or (with_completion and not usage.HasField("completion_tokens")):
        return False
    counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens)
    return all(0 <= count <= MAX_COUNT for count in counts)


def done_line(reservation_id: str) -> bytes:
    """The line that says that billing has answered."""
    return orjson.dumps({"done": reservation_id}) + b"\n"


def read_lines(text: bytes) -> tuple[dict[str, Settlement], int, list[bytes]]:
    """(settlements without an answer, length of the part that is whole, lines in it that cannot be read).

    A process that dies while it appends leaves a last line without an end: that settlement was never sent, because
    appending comes first."""
    whole = text.rfind(b"\n") + 1
    pending: dict[str, Settlement] = {}
    unreadable: list[bytes] = []
    # Not `splitlines`, for which a carriage return is an end, too.
    for line in text[:whole].split(b"\n")[:-1]:
        try:
            entry = orjson.loads(line)
            if "done" in entry:
                pending.pop(entry["done"], None)
            else:
                settlement = Settlement(**entry["settle"])
                _check(settlement)
                pending[settlement.reservation_id] = settlement
        except (ValueError, TypeError, KeyError):
            unreadable.append(line)
    return pending, whole, unreadable


def _check(settlement: Settlement) -> None:
    """ValueError for what could not be sent: one such line must not stand in the way of all others."""
    required = (settlement.prompt_tokens, settlement.attempts, settlement.ending)
    optional = (settlement.completion_tokens, settlement.cached_prompt_tokens)
    counts = (*required, *(each for each in optional if each is not None))
    if not all(type(count) is int and 0 <= count <= MAX_COUNT for count in counts):
        raise ValueError("a count is none")
    texts = (settlement.reservation_id, settlement.worker_id, settlement.traceparent)
    if not settlement.reservation_id or not all(isinstance(text, str) for text in texts):
        raise ValueError("a text is none")
