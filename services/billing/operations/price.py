"""Operators' mutation of prices: add a version. Pure. A version is never changed, and none applies to the past."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from google.protobuf.message import Message
from speedinfer.billing.v1 import account_pb2
from speedinfer.billing.v1 import price_pb2 as pb

from services.billing import messages
from services.billing.books import Books
from services.billing.hold import MAX_MODEL_CHARS
from services.billing.operations.account import existing
from services.billing.operations.allowance import amount
from services.billing.operations.mutation import Mutation, invalid
from services.billing.price import Bounds, PriceVersion, Tier, check_tiers
from services.billing.store.port import Names
from services.billing.usage import MAX_COUNT
from services.common.visible_text import is_name

# How far a caller's clock may be behind billing's.
SKEW_MS = 5_000
MAX_TOKENS_PER_BYTE = 1_000


class SetPrice(Mutation):
    """One item of SetPricesRequest."""

    kind = "set_price"
    answer_type = pb.PriceResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(accounts={self.item.account_id} if self.item.account_id else set())

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        if not 1 <= len(self.item.model) <= MAX_MODEL_CHARS or not is_name(self.item.model):
            raise invalid("model", f"a model name of 1 to {MAX_MODEL_CHARS} characters that can be seen is expected")
        if self.item.account_id:
            existing(books, self.item.account_id)
        version = PriceVersion(
            version=f"prc_{self.item.operation_id.replace('-', '')}",
            model=self.item.model,
            account_id=self.item.account_id,
            effective_from_ms=self._effective_from(books.now_ms),
            created_at_ms=books.now_ms,
            tiers=_tiers(self.item),
            bounds=_bounds(self.item.bounds, books.price_latest(self.item.model, self.item.account_id)),
        )
        books.add_price(version)
        return self.done(price=messages.price(version))

    def _effective_from(self, now_ms: int) -> int:
        if not self.item.HasField("effective_from"):
            return now_ms
        wanted = messages.moment_ms(self.item.effective_from)
        if wanted is None or wanted < now_ms - SKEW_MS:
            raise invalid("effective_from", "a price cannot be set in the past")
        return max(wanted, now_ms)


@dataclass(frozen=True, slots=True)
class SetPriceList:
    """A SetPricesRequest that is done as a whole: every item that is wrong is named, and then none is added."""

    items: Sequence[SetPrice]

    def name(self, names: Names) -> None:
        """See Operation."""
        for item in self.items:
            item.name(names)

    def apply(self, books: Books) -> pb.SetPricesResponse:
        """See Operation."""
        before = {one.item.operation_id for one in self.items if books.operation(one.item.operation_id)}
        mark = books.mark_prices()
        results: list[Any] = [one.apply(books) for one in self.items]
        if any(result.status != account_pb2.MUTATION_STATUS_DONE for result in results):
            books.undo_prices(mark)
            results = [
                result
                # What an earlier call did stands.
                if result.status != account_pb2.MUTATION_STATUS_DONE or result.operation_id in before
                else pb.PriceResult(
                    operation_id=result.operation_id,
                    status=account_pb2.MUTATION_STATUS_NOT_DONE,
                    message="another price of the list was refused",
                )
                for result in results
            ]
        return pb.SetPricesResponse(results=results)


def _tiers(item: pb.SetPriceItem) -> tuple[Tier, ...]:
    tiers = []
    for index, tier in enumerate(item.tiers):
        place = f"tiers[{index}]"
        prompt_nanos = amount(tier.prompt, f"{place}.prompt")
        cached_nanos = amount(tier.cached_prompt, f"{place}.cached_prompt")
        tiers.append(
            Tier(
                from_prompt_tokens=tier.from_prompt_tokens,
                prompt_nanos=prompt_nanos,
                cached_nanos=cached_nanos if tier.HasField("cached_prompt") else prompt_nanos,
                completion_nanos=amount(tier.completion, f"{place}.completion"),
            )
        )
        # A model is never free by accident: that it costs nothing must be said.
        for name in ("prompt", "completion"):
            if not tier.HasField(name):
                raise invalid(f"{place}.{name}", "a price is missing; a price of 0 must be said")
    if wrong := check_tiers(tiers):
        raise invalid(*wrong)
    return tuple(tiers)


def _bounds(asked: Any, before: PriceVersion | None) -> Bounds:
    """What is asked, and where nothing is asked what the model's latest version has, or else the defaults."""
    values = asdict(before.bounds if before else Bounds())
    for name in values:
        if asked.HasField(name):
            values[name] = getattr(asked, name)
            highest = MAX_TOKENS_PER_BYTE if name == "tokens_per_byte" else MAX_COUNT
            lowest = 1 if name in ("max_output_tokens", "default_output_tokens", "tokens_per_byte") else 0
            if not lowest <= values[name] <= highest:
                raise invalid(f"bounds.{name}", f"a number from {lowest} to {highest} is expected")
    if values["default_output_tokens"] > values["max_output_tokens"]:
        if asked.HasField("default_output_tokens"):
            raise invalid("bounds.default_output_tokens", "the default is more than max_output_tokens")
        values["default_output_tokens"] = values["max_output_tokens"]
    return Bounds(**values)
