"""What operators ask at random: accounts, credit, limits, keys and prices, good and wrong."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf import timestamp_pb2
from google.type import money_pb2
from speedinfer.billing.v1 import account_pb2, key_pb2, price_pb2

from services.common.money import to_money
from tests.ledger.auditor import Auditor

# The last one has no price at first.
MODELS = ("plain", "tiered", "odd", "later")
USD = 1_000_000_000
MAX_ACCOUNTS, MAX_KEYS = 6, 24


def stamp(at_ms: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def tier(start: int, prompt: int, completion: int, cached: int | None = None) -> price_pb2.PriceTier:
    made = price_pb2.PriceTier(from_prompt_tokens=start, prompt=to_money(prompt), completion=to_money(completion))
    if cached is not None:
        made.cached_prompt.CopyFrom(to_money(cached))
    return made


TARIFFS = (
    [tier(0, USD, USD)],
    [tier(0, USD, USD // 2, USD // 3), tier(1_000, 3 * USD, USD, USD)],
    # Nothing comes out even.
    [tier(0, 1_400_000_007, 4_400_000_001, 260_000_003)],
    [tier(0, 0, 0)],
    [tier(0, 1, 3, 0), tier(7, 2, 2), tier(500, 100 * USD, 1)],
)


class OperatorItems:
    """See above."""

    def __init__(self, chance: Random, auditor: Auditor, new_id: Callable[[], str]) -> None:
        self._chance, self._auditor, self._new_id = chance, auditor, new_id
        self._made = 0

    def first(self) -> Iterator[tuple[Any, ...]]:
        """Three accounts with two keys each, and prices of all models but the last."""
        for _ in range(3):
            yield self._create_account(credit=self._money(3, 9))
        for account_id in list(self._auditor.accounts):
            for _ in range(2):
                yield self._create_key(account_id)
        for place, model in enumerate(MODELS[:-1]):
            yield "set_price", price_pb2.SetPriceItem(operation_id=self._new_id(), model=model, tiers=TARIFFS[place])

    def next(self) -> tuple[Any, ...]:
        """Kind, item and what else goes with it."""
        makers: tuple[tuple[int, Callable[[], tuple[Any, ...]]], ...] = (
            (1, self._create_account),
            (30, self._post_credit),
            (20, self._adjust),
            (16, self._limit_account),
            (8, self._create_key),
            (2, self._revoke),
            (8, self._rotate),
            (15, self._set_price),
            (5, self._set_price_list),
        )
        (maker,) = self._chance.choices([one for _, one in makers], [weight for weight, _ in makers])
        return maker()

    def _money(self, low: int, high: int) -> money_pb2.Money:
        return to_money(self._chance.randint(low * USD, high * USD))

    def _account(self) -> str:
        return self._chance.choice(list(self._auditor.accounts)) if self._chance.random() < 0.97 else "acct-none"

    def _key(self) -> str:
        return self._chance.choice(list(self._auditor.keys)) if self._chance.random() < 0.97 else "key-none"

    def _create_account(self, credit: money_pb2.Money | None = None) -> tuple[Any, ...]:
        chance = self._chance
        if len(self._auditor.accounts) >= MAX_ACCOUNTS:
            return self._post_credit()
        self._made += 1
        item = account_pb2.CreateAccountItem(operation_id=self._new_id(), name=chance.choice(("Acme",) * 9 + (" ",)))
        if credit is not None:
            item.name = "Acme"
            item.credit.CopyFrom(credit)
        elif chance.random() < 0.8:
            item.credit.CopyFrom(self._money(-1, 4))
        return "create_account", item, f"acct-{self._made}"

    def _post_credit(self) -> tuple[Any, ...]:
        amount = self._chance.choice((self._money(0, 2), self._money(0, 2), to_money(0), to_money(-5)))
        item = account_pb2.CreditItem(operation_id=self._new_id(), account_id=self._account(), amount=amount, note="n")
        return "post_credit", item

    def _adjust(self) -> tuple[Any, ...]:
        chance = self._chance
        account_id = self._account()
        account = self._auditor.accounts.get(account_id)
        available = account.available if account else 0
        amount = chance.choice((-available, -available - 1, -available // 2, 7, chance.randint(-USD, USD), 0))
        item = account_pb2.AdjustmentItem(
            operation_id=self._new_id(),
            account_id=account_id,
            amount=to_money(amount),
            reason=chance.choice(("r", "r", "r", " ")),
        )
        if chance.random() < 0.3:
            item.request_id = chance.choice([*list(self._auditor.holds)[-20:], "none"])
        return "adjust", item

    def _limits(self, message: Any) -> None:
        chance = self._chance
        if chance.random() < 0.3:
            message.requests_per_minute = chance.choice((0, 3, 10, 40) if chance.random() < 0.3 else (10, 40, 100))
        if chance.random() < 0.3:
            message.tokens_per_minute = chance.choice((10_000, 100_000, 1_000_000))
        if chance.random() < 0.3:
            message.concurrency = chance.choice((1, 3, 12, -1) if chance.random() < 0.1 else (5, 12, 30))
        if chance.random() < 0.25:
            message.daily_spend.CopyFrom(self._money(0, 9))
        if chance.random() < 0.25:
            message.monthly_spend.CopyFrom(self._money(2, 20))
        if chance.random() < 0.08:
            message.models.extend(chance.sample(MODELS, 3))
        if chance.random() < 0.05:
            message.expires_at.CopyFrom(stamp(self._auditor.now_ms + chance.choice((0, 1_000, 40_000, 10**9))))

    def _limit_account(self) -> tuple[Any, ...]:
        chance = self._chance
        item = account_pb2.AccountLimitsItem(operation_id=self._new_id(), account_id=self._account())
        self._limits(item.limits)
        account = self._auditor.accounts.get(item.account_id)
        if account and account.limits.ended(self._auditor.now_ms):
            item.limits.ClearField("expires_at")
            item.remove.append("expires_at")
        if chance.random() < 0.3:
            item.limits.credit_limit.CopyFrom(self._money(0, 2))
        said = {field.name for field, _ in item.limits.ListFields()}
        names = [field.name for field in item.limits.DESCRIPTOR.fields]
        item.remove.extend(name for name in names if name not in {*said, *item.remove} and chance.random() < 0.6)
        if said and chance.random() < 0.05:
            item.remove.append(min(said))
        return "limit_account", item

    def _create_key(self, account_id: str = "") -> tuple[Any, ...]:
        if len(self._auditor.keys) >= MAX_KEYS and not account_id:
            return self._revoke()
        self._made += 1
        chance = self._chance
        key_id = f"key-{self._made}" if chance.random() < 0.95 or account_id else self._key()
        item = key_pb2.CreateKeyItem(
            operation_id=self._new_id(), account_id=account_id or self._account(), key_id=key_id, key_sha256=bytes(32)
        )
        self._limits(item.limits)
        if account_id:
            # The first keys do not end, so that there is always one that works.
            item.limits.ClearField("expires_at")
            item.limits.ClearField("requests_per_minute")
            if item.limits.concurrency < 0:
                item.limits.ClearField("concurrency")
        return "create_key", item

    def _revoke(self) -> tuple[Any, ...]:
        # The first keys stay, so that there is always one that works.
        keys = [*list(self._auditor.keys)[6:], "key-none"]
        return "revoke", key_pb2.RevokeKeyItem(operation_id=self._new_id(), key_id=self._chance.choice(keys))

    def _rotate(self) -> tuple[Any, ...]:
        self._made += 1
        keys = [*list(self._auditor.keys)[5:], "key-none"]
        item = key_pb2.RotateKeyItem(
            operation_id=self._new_id(),
            key_id=self._chance.choice(keys),
            new_key_id=f"key-{self._made}" if self._chance.random() < 0.95 else self._key(),
            new_key_sha256=bytes(32),
            grace_ms=self._chance.choice((0, 5_000, 3_600_000)),
        )
        return "rotate", item

    def _price_item(self) -> price_pb2.SetPriceItem:
        chance = self._chance
        now_ms = self._auditor.now_ms
        item = price_pb2.SetPriceItem(
            operation_id=self._new_id(), model=chance.choice(MODELS), tiers=chance.choice(TARIFFS)
        )
        if chance.random() < 0.4:
            item.account_id = self._account()
        if chance.random() < 0.6:
            wait_ms = chance.choice((0, 0, 1, 20_000, 60_000, 600_000, -4_999, -5_001))
            item.effective_from.CopyFrom(stamp(now_ms + wait_ms))
        if chance.random() < 0.3:
            item.bounds.max_output_tokens = chance.choice((50, 4_096, 500_000))
            item.bounds.image_tokens = chance.choice((0, 700))
        if chance.random() < 0.2:
            item.bounds.default_output_tokens = chance.choice((10, 5_000))
            item.bounds.template_request_tokens = chance.choice((0, 40))
        if chance.random() < 0.04:
            item.tiers[0].ClearField(chance.choice(("prompt", "completion")))
        return item

    def _set_price(self) -> tuple[Any, ...]:
        return "set_price", self._price_item()

    def _set_price_list(self) -> tuple[Any, ...]:
        return "set_price_list", [self._price_item() for _ in range(self._chance.randint(1, 4))]
