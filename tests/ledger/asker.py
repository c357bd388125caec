"""Asks at random, from one seed: every call of operators and the edge, new and repeated, good, wrong and impossible.

What is chosen depends on the seed and on what the auditor knows so far; the engine's answers choose nothing. So a seed is the
same run wherever it runs, up to the first difference, where it ends.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1 import operation_pb2, usage_pb2

from services.common.ids import uuid7
from tests.ledger.auditor import FUTURE_MS, KEPT_MS, Answer, Auditor
from tests.ledger.auditor_operators import Operators
from tests.ledger.operator_items import MODELS, OperatorItems
from tests.ledger.records import CHARGED, EXPIRED, Hold

# Of a hundred calls.
KINDS = {
    "reserve": 50,
    "settle": 13,
    "release": 3,
    "renew": 4,
    "lapse": 3,
    "again": 10,
    "otherwise": 5,
    "operate": 12,
}
IDEMPOTENCY_KEYS = ("",) * 60 + tuple(f"i{number}" for number in range(20))


class Asked(NamedTuple):
    """One call, and what it must be answered."""

    kind: str
    item: Any
    more: tuple[str, ...]
    answer: Answer


class Asker:
    """See above. It also keeps what was asked, to ask it again."""

    def __init__(self, chance: Random, auditor: Auditor) -> None:
        self.chance, self.auditor = chance, auditor
        self._operators = Operators(auditor)
        self._operator_items = OperatorItems(chance, auditor, self.new_id)
        self.log: list[Asked] = []

    def copy(self) -> "Asker":
        """It and its auditor as they stand, to go back to. What was asked and answered never changes, so that is shared."""
        done = self._operators.done
        return deepcopy(self, {id(self.log): list(self.log), id(done): dict(done)})

    def new_id(self) -> str:
        return uuid7(self.auditor.now_ms, self.chance.randbytes(10))

    def open_up(self) -> list[Asked]:
        """What there must be before anything can be reserved."""
        return [self._ask(*one) for one in self._operator_items.first()]

    def next(self) -> Asked:
        """One more call."""
        (kind,) = self.chance.choices(list(KINDS), list(KINDS.values()))
        match kind:
            case "again" if self.log:
                # What was asked lately or long ago: the same item, so the same answer or the state of today.
                old = self.chance.choice(self.log[-40:] if self.chance.random() < 0.7 else self.log)
                return self._ask(old.kind, old.item, *old.more)
            case "otherwise" if self.auditor.holds:
                return self._ask(*self._otherwise())
            case "operate" | "again" | "otherwise":
                return self._ask(*self._operator_items.next())
            case "reserve":
                return self._ask(kind, self._reserve())
            case "settle":
                return self._ask(kind, self._settle(self._some_hold()))
            case "release":
                item = pb.ReleaseItem(reservation_id=self._some_hold(), cause="c", worker_id="w", attempts=1)
                return self._ask(kind, item)
            case "renew":
                return self._ask(kind, pb.RenewItem(reservation_id=self._some_hold()))
        return self._ask("lapse", None)

    def _ask(self, kind: str, item: Any, *more: str) -> Asked:
        side: Any = self.auditor if kind in ("reserve", "settle", "release", "renew", "lapse") else self._operators
        perform: Callable[..., Answer] = getattr(side, kind)
        answer = perform(*(() if item is None else (item,)), *more)
        asked = Asked(kind, item, more, answer)
        self.log.append(asked)
        return asked

    def _strange_id(self) -> str:
        """An id that is none, too old, of the future, or new to billing."""
        now_ms, tail = self.auditor.now_ms, self.chance.randbytes(10)
        moments_ms = (now_ms - KEPT_MS - 1, now_ms - KEPT_MS, now_ms, now_ms + FUTURE_MS, now_ms + FUTURE_MS + 1)
        texts = ("", "x", uuid7(now_ms, tail).upper())
        return self.chance.choice((*texts, *(uuid7(at_ms, tail) for at_ms in moments_ms)))

    def _some_hold(self) -> str:
        """Mostly an open hold; also closed and expired ones, and strange ids."""
        dice = self.chance.random()
        auditor = self.auditor
        if dice < 0.04 or not auditor.holds:
            return self._strange_id()
        if dice < 0.6 and auditor.open:
            return self.chance.choice(list(auditor.open))
        recent = list(auditor.holds.values())[-150:]
        late = [one for one in recent if one.state == EXPIRED]
        return self.chance.choice(late if late and dice < 0.85 else recent).id

    def _reserve(self) -> pb.ReserveItem:
        chance = self.chance
        item = pb.ReserveItem(
            reservation_id=self._strange_id() if chance.random() < 0.03 else self.new_id(),
            key_id=self._some_key(),
            model=chance.choices((*MODELS, "unheard-of"), (50, 30, 15, 4, 1))[0],
            operation=chance.choice((1, 1, 2, 3)),  # type: ignore[arg-type]
            prompt=pb.PromptSize(
                text_bytes=chance.choice((0, 1, 7, 401, 999, 1_000, 5_000, 100_000)),
                messages=chance.choice((0, 1, 3)),
                has_tools=chance.random() < 0.2,
                images=chance.choice((0,) * 14 + (2,)),
                inputs=chance.choice((0, 0, 4)),
                token_ids=chance.choice((0, 0, 13)),
            ),
            sequences=chance.choice((0, 0, 1, 3)),
            idempotency_key=chance.choice(IDEMPOTENCY_KEYS),
        )
        if chance.random() < 0.6:
            item.output_limit = chance.choice((1, 100, 777, 10_000, 400_000))
        if chance.random() < 0.1:
            item.counted_prompt_tokens = chance.choice((0, 5, 1_000))
        if chance.random() < 0.3:
            item.context.remaining_ms = chance.choice((1, 5_000, 90_000, 10**12))
        if chance.random() < 0.02:
            self._spoil(item)
        return item

    def _some_key(self) -> str:
        """Mostly one that works."""
        dice, auditor = self.chance.random(), self.auditor
        if dice < 0.02:
            return "key-none"
        good = [key.id for key in auditor.keys.values() if key.good(auditor.now_ms)]
        return self.chance.choice(good if good and dice < 0.92 else list(auditor.keys))

    def _spoil(self, item: pb.ReserveItem) -> None:
        match self.chance.randrange(8):
            case 0:
                item.context.request_id = "another"
            case 1:
                item.context.remaining_ms = -1
            case 2:
                item.model = "m" * 257
            case 3:
                item.operation = operation_pb2.OPERATION_UNSPECIFIED
            case 4:
                item.prompt.token_ids = -1
            case 5:
                item.output_limit = 0
            case 6:
                item.sequences = 1_025
            case 7:
                item.idempotency_key = "k" * 256

    def _settle(self, reservation_id: str) -> pb.SettleItem:
        chance = self.chance
        hold = self.auditor.holds.get(reservation_id)
        most = (hold.output_limit or 0) if hold else 0
        usage = usage_pb2.Usage(prompt_tokens=chance.choice((0, 1, 12, 999, 1_000, 27_147)))
        if chance.random() < 0.5:
            usage.cached_prompt_tokens = chance.choice((0, 1, usage.prompt_tokens, usage.prompt_tokens + 1))
        if chance.random() < 0.97:
            usage.completion_tokens = chance.choice((0, 5, 351, most, 3 * most + 1))
        if chance.random() < 0.03:
            setattr(usage, chance.choice(("prompt_tokens", "completion_tokens", "cached_prompt_tokens")), -1)
        return pb.SettleItem(
            reservation_id=reservation_id,
            usage=usage,
            worker_id=chance.choice(("w-1", "w-2")),
            attempts=chance.choice((1, 2)),
            ending=chance.choice((pb.ENDING_COMPLETED, pb.ENDING_CLIENT_LEFT)),
        )

    def _otherwise(self) -> tuple[str, Any]:
        """A known id with one part of its content changed."""
        hold = self.auditor.holds[self._known()]
        if hold.state in CHARGED and self.chance.random() < 0.5:
            return "settle", self._settled_otherwise(hold)
        item = pb.ReserveItem()
        item.CopyFrom(hold.asked)
        if not hold.account:
            return "reserve", item
        match self.chance.randrange(7):
            case 0:
                item.key_id += "x"
            case 1:
                item.model += "x"
            case 2:
                item.prompt.text_bytes += 1
            case 3:
                item.sequences += 1
            case 4:
                item.idempotency_key += "x"
            case 5:
                item.output_limit = item.output_limit + 1
            case 6:
                # Not content: the same request sent again with less time left.
                item.context.remaining_ms = 17
        return "reserve", item

    def _settled_otherwise(self, hold: Hold) -> pb.SettleItem:
        assert hold.counts is not None
        prompt, cached, completion = hold.counts
        usage = usage_pb2.Usage(prompt_tokens=prompt, cached_prompt_tokens=cached, completion_tokens=completion)
        item = pb.SettleItem(
            reservation_id=hold.id,
            usage=usage,
            worker_id=hold.worker,
            attempts=hold.attempts,
            ending=hold.ending,  # type: ignore[arg-type]
        )
        match self.chance.randrange(5):
            case 0:
                item.usage.prompt_tokens += 1
            case 1:
                item.usage.completion_tokens += 1
            case 2:
                item.worker_id += "x"
            case 3:
                item.attempts += 1
            case 4:
                item.ending = pb.ENDING_DEADLINE
        return item

    def _known(self) -> str:
        return self.chance.choice(list(self.auditor.holds)[-80:])
