"""The auditor's side of operators: accounts, credit, limits, keys, prices, and what a repeated operation is answered.

Like `auditor.py` it imports nothing of the product.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message
from google.type import money_pb2
from speedinfer.billing.v1 import account_pb2, key_pb2, price_pb2

from tests.ledger.auditor import Answer, Auditor, age
from tests.ledger.records import Account, Key, Limits, Used, Version

DEFAULT_BOUNDS: dict[str, int | None] = {
    "max_output_tokens": 4096,
    "default_output_tokens": 1024,
    "tokens_per_byte": 1,
    "template_request_tokens": 32,
    "template_message_tokens": 8,
    "tools_request_tokens": 512,
    "tools_message_tokens": 16,
    "image_tokens": None,
}
SPENDS = ("daily_spend", "monthly_spend")
COUNTS = ("requests_per_minute", "tokens_per_minute", "concurrency")


class Wrong(Exception):
    """A mutation is not done."""

    def __init__(self, status: str, field: str) -> None:
        super().__init__(status, field)
        self.status, self.field = status, field


def nanos(money: money_pb2.Money) -> int:
    return int(money.units * 1_000_000_000 + money.nanos)


def moment(stamp: Any) -> int:
    return int(stamp.seconds * 1000 + stamp.nanos // 1_000_000)


class Operators:
    """Mutations, each done once by its operation id."""

    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        # Done: the item as it was, and the answer that it got.
        self.done: dict[str, tuple[Message, Answer]] = {}

    def once(self, item: Any, perform: Callable[[], Answer]) -> Answer:
        """The answer of a mutation: done now, or as it was done."""
        old = age(item.operation_id, self.auditor.now_ms)
        if old in ("malformed", "old"):
            return _wrong("INVALID" if old == "malformed" else "ID_EXPIRED", "operation_id")
        if item.operation_id in self.done:
            before, answer = self.done[item.operation_id]
            if type(before) is not type(item):
                return _wrong("CONFLICT", "operation_id")
            return answer if before == item else _wrong("CONFLICT", _differs(before, item))
        if old == "future":
            return _wrong("INVALID", "operation_id")
        try:
            answer = {"status": "DONE", "field": "", **perform()}
        except Wrong as wrong:
            return _wrong(wrong.status, wrong.field)
        self.done[item.operation_id] = (item, answer)
        return answer

    def create_account(self, item: account_pb2.CreateAccountItem, account_id: str) -> Answer:
        def perform() -> Answer:
            if not item.name.strip():
                raise Wrong("INVALID", "name")
            if nanos(item.credit) < 0:
                raise Wrong("INVALID", "credit")
            account = Account(account_id, _limits(item.limits, Limits()), nanos(item.limits.credit_limit))
            self.auditor.accounts[account_id] = account
            if item.HasField("credit") and nanos(item.credit):
                account.book(nanos(item.credit))
            return _figures(account)

        return self.once(item, perform)

    def post_credit(self, item: account_pb2.CreditItem) -> Answer:
        def perform() -> Answer:
            account = self._account(item.account_id)
            if nanos(item.amount) <= 0:
                raise Wrong("INVALID", "amount")
            account.book(nanos(item.amount))
            return _figures(account)

        return self.once(item, perform)

    def adjust(self, item: account_pb2.AdjustmentItem) -> Answer:
        def perform() -> Answer:
            account = self._account(item.account_id)
            if nanos(item.amount) == 0:
                raise Wrong("INVALID", "amount")
            if not item.reason.strip():
                raise Wrong("INVALID", "reason")
            if item.request_id:
                corrected = self.auditor.holds.get(item.request_id)
                if corrected is None or corrected.account != account.id:
                    raise Wrong("NOT_FOUND", "request_id")
            if -nanos(item.amount) > max(account.available, 0) and nanos(item.amount) < 0:
                raise Wrong("INSUFFICIENT_CREDIT", "amount")
            account.book(nanos(item.amount))
            return _figures(account)

        return self.once(item, perform)

    def limit_account(self, item: account_pb2.AccountLimitsItem) -> Answer:
        def perform() -> Answer:
            account = self._account(item.account_id)
            said = {field.name for field, _ in item.limits.ListFields()}
            if not said and not item.remove:
                raise Wrong("INVALID", "limits")
            limits = _limits(item.limits, account.limits)
            if said & set(item.remove):
                raise Wrong("INVALID", "remove")
            credit_limit = nanos(item.limits.credit_limit) if "credit_limit" in said else account.credit_limit
            for name in item.remove:
                if name == "credit_limit":
                    credit_limit = 0
                else:
                    nothing: Any = () if name == "models" else None
                    limits = replace(limits, **{name: nothing})
            account.limits, account.credit_limit = limits, credit_limit
            return _figures(account)

        return self.once(item, perform)

    def create_key(self, item: key_pb2.CreateKeyItem) -> Answer:
        def perform() -> Answer:
            account = self._account(item.account_id)
            limits = _limits(item.limits, Limits())
            if item.key_id in self.auditor.keys:
                raise Wrong("INVALID", "key_id")
            self.auditor.keys[item.key_id] = Key(item.key_id, account.id, limits, Used())
            return {"key": item.key_id}

        return self.once(item, perform)

    def revoke(self, item: key_pb2.RevokeKeyItem) -> Answer:
        def perform() -> Answer:
            self._key(item.key_id).revoked = True
            return {"key": item.key_id}

        return self.once(item, perform)

    def rotate(self, item: key_pb2.RotateKeyItem) -> Answer:
        def perform() -> Answer:
            old = self._key(item.key_id)
            if not old.good(self.auditor.now_ms) or old.successor:
                raise Wrong("INVALID", "key_id")
            if item.new_key_id in self.auditor.keys:
                raise Wrong("INVALID", "new_key_id")
            self.auditor.keys[item.new_key_id] = Key(item.new_key_id, old.account, old.limits, old.used)
            end_ms = self.auditor.now_ms + item.grace_ms
            if old.limits.expires_at is None or end_ms < old.limits.expires_at:
                old.limits = replace(old.limits, expires_at=end_ms)
            old.successor = item.new_key_id
            return {"key": item.new_key_id}

        return self.once(item, perform)

    def set_price(self, item: price_pb2.SetPriceItem) -> Answer:
        def perform() -> Answer:
            now_ms = self.auditor.now_ms
            if item.account_id:
                self._account(item.account_id)
            from_ms = moment(item.effective_from) if item.HasField("effective_from") else now_ms
            if from_ms < now_ms - 5_000:
                raise Wrong("INVALID", "effective_from")
            tiers = []
            for place, one in enumerate(item.tiers):
                for name in ("prompt", "completion"):
                    if not one.HasField(name):
                        raise Wrong("INVALID", f"tiers[{place}].{name}")
                prompt = nanos(one.prompt)
                cached = nanos(one.cached_prompt) if one.HasField("cached_prompt") else prompt
                if cached > prompt:
                    raise Wrong("INVALID", f"tiers[{place}].cached_prompt")
                tiers.append((one.from_prompt_tokens, prompt, cached, nanos(one.completion)))
            version = Version(
                "prc_" + item.operation_id.replace("-", ""),
                item.model,
                item.account_id,
                max(from_ms, now_ms),
                tuple(tiers),
                self._bounds(item),
            )
            self.auditor.versions.append(version)
            return {"version": version.id, "from_ms": version.from_ms, "bounds": version.bounds}

        return self.once(item, perform)

    def set_price_list(self, items: list[price_pb2.SetPriceItem]) -> Answer:
        """All or none: a wrong one takes the others back, but for what an earlier call did."""
        versions, done = list(self.auditor.versions), dict(self.done)
        answers = [self.set_price(item) for item in items]
        if any(answer["status"] != "DONE" for answer in answers):
            before = done.keys()
            self.auditor.versions, self.done = versions, done
            for place, item in enumerate(items):
                if answers[place]["status"] == "DONE" and item.operation_id not in before:
                    answers[place] = _wrong("NOT_DONE", "")
        return {"list": answers}

    def _bounds(self, item: price_pb2.SetPriceItem) -> dict[str, int | None]:
        """What is said, else what the version has that applies last: the account's own, or else the general one."""
        bounds = dict(DEFAULT_BOUNDS)
        for scope in ("", item.account_id):
            mine = [
                (one.from_ms, place)
                for place, one in enumerate(self.auditor.versions)
                if (one.model, one.account) == (item.model, scope)
            ]
            if mine:
                bounds = dict(self.auditor.versions[max(mine)[1]].bounds)
        said = {field.name: value for field, value in item.bounds.ListFields()}
        bounds |= said
        most, usual = bounds["max_output_tokens"] or 0, bounds["default_output_tokens"] or 0
        if usual > most:
            if "default_output_tokens" in said:
                raise Wrong("INVALID", "bounds.default_output_tokens")
            bounds["default_output_tokens"] = most
        return bounds

    def _account(self, account_id: str) -> Account:
        if account_id not in self.auditor.accounts:
            raise Wrong("NOT_FOUND", "account_id")
        return self.auditor.accounts[account_id]

    def _key(self, key_id: str) -> Key:
        if key_id not in self.auditor.keys:
            raise Wrong("NOT_FOUND", "key_id")
        return self.auditor.keys[key_id]


def _limits(message: Any, before: Limits) -> Limits:
    said: dict[str, Any] = {name: getattr(message, name) for name in COUNTS if message.HasField(name)}
    said |= {name: nanos(getattr(message, name)) for name in SPENDS if message.HasField(name)}
    if message.models:
        said["models"] = tuple(message.models)
    if message.HasField("expires_at"):
        said["expires_at"] = moment(message.expires_at)
    for name in (*COUNTS, *SPENDS):
        if said.get(name, 0) < 0:
            raise Wrong("INVALID", f"limits.{name}")
    return replace(before, **said)


def _figures(account: Account) -> Answer:
    return {"account": account.id, "balance": account.balance, "held": account.held, "available": account.available}


def _wrong(status: str, field: str) -> Answer:
    return {"status": status, "field": field}


def _differs(before: Any, after: Any) -> str:
    """The first field that is not as before; inside messages that are there on both sides, the field inside."""
    for field in sorted(before.DESCRIPTOR.fields, key=lambda field: field.number):
        mine, theirs = getattr(before, field.name), getattr(after, field.name)
        if field.name == "operation_id" or (mine == theirs and _there(before, field) == _there(after, field)):
            continue
        nested = field.message_type is not None and not _many(field) and _there(before, field) and _there(after, field)
        return f"{field.name}.{_differs(mine, theirs)}" if nested else str(field.name)
    raise AssertionError("two equal items are no conflict")


def _many(field: Any) -> bool:
    return bool(field.is_repeated)


def _there(item: Any, field: Any) -> bool:
    return bool(field.has_presence and item.HasField(field.name))
