"""An auditor of billing: what each call must be answered and leave behind, written from the contract's section 6 alone.

It imports nothing of the product. It is slow and obvious on purpose: balances are sums of entries, what is used in a window is
read from the holds that were made in it, prices are looked for among all versions. Answers are plain dictionaries; `answers.py`
makes the same of what billing said.
"""

from collections.abc import Sequence
from typing import Any

from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.ledger import tariff
from tests.ledger.records import (
    CHARGED,
    DAY_MS,
    EXPIRED,
    HELD,
    LATE,
    RELEASED,
    SETTLED,
    Account,
    Hold,
    Key,
    Limits,
    Version,
    day_start,
    month_start,
)

LEASE_MS = 60_000
FUTURE_MS = 300_000
KEPT_MS = 90 * DAY_MS
AFTER_DEADLINE_MS = 120_000
DEFAULT_DEADLINE_MS, LONGEST_DEADLINE_MS = 3_600_000, 86_400_000
# Content, in the order in which a conflict names it.
CONTENT = (
    *("key_id", "model", "operation"),
    *(f"prompt.{name}" for name in ("text_bytes", "messages", "has_tools", "images", "inputs", "token_ids")),
    *("output_limit", "sequences", "counted_prompt_tokens", "idempotency_key"),
)

Answer = dict[str, Any]


def age(identity: str, now_ms: int) -> str:
    """What an id says of itself: its first 48 bits are milliseconds."""
    digits = identity.replace("-", "")
    if len(identity) != 36 or len(digits) != 32 or digits[12] != "7" or identity != identity.lower():
        return "malformed"
    made_ms = int(digits[:12], 16)
    return "old" if made_ms < now_ms - KEPT_MS else "future" if made_ms > now_ms + FUTURE_MS else "good"


class Auditor:
    """The books as they must be."""

    def __init__(self, wall_ms: int, monotonic_ms: int) -> None:
        self.now_ms, self.monotonic_ms = wall_ms, monotonic_ms
        self._looked_ms: int | None = None
        self.accounts: dict[str, Account] = {}
        self.keys: dict[str, Key] = {}
        self.versions: list[Version] = []
        self.holds: dict[str, Hold] = {}
        self.open: dict[str, Hold] = {}
        # Those that bear an idempotency key, by account and key.
        self._bearers: dict[tuple[str, str], list[Hold]] = {}

    # Time

    def look(self) -> None:
        """A batch begins. After a silence of more than half a lease every open hold has a full one: nobody could renew it."""
        if self._looked_ms is not None and self.monotonic_ms - self._looked_ms > LEASE_MS // 2:
            for hold in self.open.values():
                hold.lease_ms = max(hold.lease_ms, self.monotonic_ms + LEASE_MS)
                hold.hard_end_ms = max(hold.hard_end_ms, hold.lease_ms)
        self._looked_ms = self.monotonic_ms

    def restart(self) -> None:
        """Billing was started again: each open hold has a full lease."""
        for hold in self.open.values():
            left_ms = min(hold.hard_end_wall_ms - self.now_ms, hold.hard_end_wall_ms - hold.made_ms)
            hold.lease_ms = self.monotonic_ms + LEASE_MS
            hold.hard_end_ms = self.monotonic_ms + max(left_ms, LEASE_MS)
        self._looked_ms = None

    def _age(self, reservation_id: str) -> str:
        """An id that is stored is kept from its making here on, and an open hold is never too old."""
        old, hold = age(reservation_id, self.now_ms), self.holds.get(reservation_id)
        kept = hold is not None and (hold.state == HELD or hold.made_ms >= self.now_ms - KEPT_MS)
        return "good" if old == "old" and kept else old

    # Reserve

    def reserve(self, item: pb.ReserveItem) -> Answer:
        old = self._age(item.reservation_id)
        if old == "malformed":
            return _refused("INVALID", field="reservation_id")
        if field := _impossible(item):
            return _refused("INVALID", field=field)
        if old == "old":
            return _refused("ID_EXPIRED")
        known = self.holds.get(item.reservation_id)
        if known is not None:
            if known.state in (HELD, *CHARGED) and (field := _other(known.asked, item)):
                return _refused("CONFLICT", field=field)
            return self._standing(known)
        if old == "future":
            return _refused("INVALID", field="reservation_id")
        return self._admit(item)

    def _admit(self, item: pb.ReserveItem) -> Answer:
        key = self.keys.get(item.key_id)
        if key is None or not key.good(self.now_ms):
            return _refused("INVALID_KEY")
        account = self.accounts[key.account]
        if account.limits.ended(self.now_ms):
            return _refused("ACCOUNT_CLOSED")
        if any(limits.models and item.model not in limits.models for limits in (key.limits, account.limits)):
            return _refused("MODEL_NOT_ALLOWED")
        version = self.price(item.model, account.id)
        if version is None:
            return _refused("MODEL_NOT_PRICED")
        most = tariff.most(item, version.tiers, version.bounds)
        if most is None:
            return _refused("INVALID", field="prompt.images")
        if (bearer := self._bearer(account.id, item.idempotency_key)) is not None:
            return _refused("DUPLICATE_REQUEST", other=bearer.id, other_charged=bearer.state in CHARGED)
        for limits, one in ((key.limits, key), (account.limits, account)):
            if reached := self._reached(limits, one, most):
                name, retry_ms = reached
                return _refused("LIMIT", limit=name, retry_after_ms=retry_ms, limits=self._left(key))
        if most.hold > account.available or account.balance + account.credit_limit < 0:
            own = account.balance + account.credit_limit >= most.hold
            return _refused(
                "HOLDS_IN_FLIGHT" if own else "INSUFFICIENT_CREDIT",
                hold=most.hold,
                available=account.available,
                retry_after_ms=1_000 if own else 0,
                limits=self._left(key),
            )
        return self._set_aside(item, key, account, version, most)

    def _reached(self, limits: Limits, whose: Key | Account, most: tariff.Most) -> tuple[str, int] | None:
        """The first limit that the request would exceed, and when to come back."""
        used, rest_ms = whose.used, 60_000 - self.now_ms % 60_000
        requests, tokens = used.minute(self.now_ms)
        day = 0 if limits.daily_spend is None else used.spend(day_start(self.now_ms))
        month = 0 if limits.monthly_spend is None else used.spend(month_start(self.now_ms))
        for name, limit, value, retry_ms in (
            ("requests_per_minute", limits.requests_per_minute, requests + 1, rest_ms),
            ("tokens_per_minute", limits.tokens_per_minute, most.counted, 0),
            ("tokens_per_minute", limits.tokens_per_minute, tokens + most.counted, rest_ms),
            ("concurrency", limits.concurrency, used.open + 1, 1_000),
            ("daily_spend", limits.daily_spend, day + most.hold, 0),
            ("monthly_spend", limits.monthly_spend, month + most.hold, 0),
        ):
            if limit is not None and value > limit:
                return name, retry_ms
        return None

    def _set_aside(
        self, item: pb.ReserveItem, key: Key, account: Account, version: Version, most: tariff.Most
    ) -> Answer:
        deadline_ms = min(item.context.remaining_ms or DEFAULT_DEADLINE_MS, LONGEST_DEADLINE_MS)
        life_ms = deadline_ms + AFTER_DEADLINE_MS
        hold = Hold(
            id=item.reservation_id,
            state=HELD,
            made_ms=self.now_ms,
            account=account.id,
            key=key.id,
            asked=item,
            hold=most.hold,
            output_limit=most.output_limit,
            version=version.id,
            counted=most.counted,
            hard_end_wall_ms=self.now_ms + life_ms,
            lease_ms=self.monotonic_ms + min(LEASE_MS, life_ms),
            hard_end_ms=self.monotonic_ms + life_ms,
        )
        self.holds[hold.id] = self.open[hold.id] = hold
        account.held += most.hold
        key.used.add(hold)
        account.used.add(hold)
        if item.idempotency_key:
            self._bearers.setdefault((account.id, item.idempotency_key), []).append(hold)
        return self._standing(hold)

    def _bearer(self, account: str, idempotency_key: str) -> Hold | None:
        """The held reservation, or else the youngest charged one."""
        mine = [one for one in self._bearers.get((account, idempotency_key), ()) if one.state in (HELD, *CHARGED)]
        return max(mine, key=lambda one: (one.state == HELD, one.id), default=None)

    def _standing(self, hold: Hold) -> Answer:
        lease_ms = hold.lease_ms - self.monotonic_ms if hold.state == HELD else 0
        key = self.keys.get(hold.key)
        return {**shown(hold, max(lease_ms, 0)), "limits": self._left(key) if key else None}

    def _left(self, key: Key) -> tuple[Any, ...] | None:
        """What is left of requests and tokens in this minute, by the tighter of key and account."""
        account = self.accounts[key.account]
        found: list[tuple[int, int] | None] = []
        for name, place in (("requests_per_minute", 0), ("tokens_per_minute", 1)):
            both = [
                (max(limit - one.used.minute(self.now_ms)[place], 0), limit)
                for one in (key, account)
                if (limit := getattr(one.limits, name)) is not None
            ]
            found.append(min(both) if both else None)
        return None if found == [None, None] else (*found, 60_000 - self.now_ms % 60_000)

    def price(self, model: str, account: str) -> Version | None:
        """In effect: the account's own, else the general one; of those the youngest."""
        for scope in (account, ""):
            found = [
                (one.from_ms, place)
                for place, one in enumerate(self.versions)
                if (one.model, one.account) == (model, scope) and one.from_ms <= self.now_ms
            ]
            if found:
                return self.versions[max(found)[1]]
        return None

    # What becomes of a hold

    def renew(self, item: pb.RenewItem) -> Answer:
        hold = self.holds.get(item.reservation_id)
        if hold is None or hold.state != HELD:
            return {"status": "CLOSED" if hold else "UNKNOWN", "lease_ms": 0}
        at_end = hold.lease_ms >= hold.hard_end_ms
        if not at_end:
            hold.lease_ms = max(hold.lease_ms, min(self.monotonic_ms + LEASE_MS, hold.hard_end_ms))
        return {"status": "AT_HARD_END" if at_end else "RENEWED", "lease_ms": max(hold.lease_ms - self.monotonic_ms, 0)}

    def settle(self, item: pb.SettleItem) -> Answer:
        old = self._age(item.reservation_id)
        if old in ("malformed", "old"):
            return _settled("INVALID" if old == "malformed" else "ID_EXPIRED", old == "malformed" and "reservation_id")
        hold = self.holds.get(item.reservation_id)
        if hold is None:
            return _settled("UNKNOWN")
        counts = tariff.reported(item.usage, hold.asked.operation)
        if isinstance(counts, str):
            return self._about(hold, _settled("INVALID", counts))
        if hold.state == RELEASED:
            return self._about(hold, _settled("CONFLICT"))
        sent = (*counts, item.worker_id[:256], item.attempts, item.ending)
        if hold.state in CHARGED:
            assert hold.counts is not None
            names = ("usage.prompt_tokens", "usage.cached_prompt_tokens", "usage.completion_tokens")
            booked = (*hold.counts, hold.worker, hold.attempts, hold.ending)
            for name, mine, theirs in zip((*names, "worker_id", "attempts", "ending"), booked, sent, strict=True):
                if mine != theirs:
                    return self._about(hold, _settled("CONFLICT", name))
            return self._about(hold, _settled(hold.state))
        account = self.accounts[hold.account]
        becomes = SETTLED if hold.state == HELD else LATE
        self._close(hold, becomes)
        (version,) = (one for one in self.versions if one.id == hold.version)
        hold.counts, hold.charge = counts, tariff.charge(version.tiers, counts)
        hold.worker, hold.attempts, hold.ending = sent[3:]
        account.book(-hold.charge)
        hold.balance_after = account.balance
        return self._about(hold, _settled(becomes))

    def release(self, item: pb.ReleaseItem) -> Answer:
        old = self._age(item.reservation_id)
        if old in ("malformed", "old"):
            return {"status": "INVALID" if old == "malformed" else "ID_EXPIRED"}
        hold = self.holds.get(item.reservation_id)
        if hold is None:
            if old == "future":
                return {"status": "INVALID"}
            self.holds[item.reservation_id] = Hold(item.reservation_id, RELEASED, self.now_ms)
            return {"status": RELEASED}
        if hold.state == HELD:
            self._close(hold, RELEASED)
        return {"status": "CONFLICT" if hold.state in CHARGED else hold.state}

    def lapse(self) -> Answer:
        over = [hold for hold in self.open.values() if hold.lease_ms <= self.monotonic_ms]
        for hold in over:
            self._close(hold, EXPIRED)
        return {"lapsed": len(over)}

    def _close(self, hold: Hold, becomes: str) -> None:
        if hold.state == HELD:
            account, key = self.accounts[hold.account], self.keys[hold.key]
            account.held -= hold.hold
            account.used.open -= 1
            key.used.open -= 1
            del self.open[hold.id]
        hold.state = becomes

    def _about(self, hold: Hold, answer: Answer) -> Answer:
        lease_ms = hold.lease_ms - self.monotonic_ms if hold.state == HELD else 0
        balance = None
        if hold.account:
            balance = hold.balance_after if hold.state in CHARGED else self.accounts[hold.account].balance
        return {**answer, "reservation": shown(hold, max(lease_ms, 0)), "balance": balance}


def shown(hold: Hold, lease_ms: int = 0) -> Answer:
    """A reservation as an answer tells of it."""
    return {
        "state": hold.state,
        "account": hold.account,
        "key": hold.key,
        "hold": hold.hold,
        "output_limit": hold.output_limit,
        "version": hold.version,
        "lease_ms": lease_ms,
        "charge": hold.charge,
        "counts": hold.counts,
        "overrun": hold.charge is not None and hold.charge > hold.hold,
    }


def _settled(status: str, field: str | bool = "") -> Answer:
    return {"status": status, "field": field or "", "reservation": None, "balance": None}


def _refused(reason: str, **parts: Any) -> Answer:
    nothing = {"field": "", "limit": "", "retry_after_ms": 0, "other": "", "other_charged": False}
    return {"refused": reason, **nothing, "hold": None, "available": None, "limits": None, **parts}


def _impossible(item: pb.ReserveItem) -> str:
    """The first of the fields that the machine makes impossible."""
    sizes = ("text_bytes", "messages", "images", "inputs", "token_ids")
    checks: Sequence[tuple[str, bool]] = (
        ("context.request_id", item.context.request_id in ("", item.reservation_id)),
        ("context.remaining_ms", item.context.remaining_ms >= 0),
        ("key_id", item.key_id != ""),
        ("model", 1 <= len(item.model) <= 256),
        ("operation", item.operation in (1, 2, 3)),
        *((f"prompt.{name}", 0 <= getattr(item.prompt, name) <= tariff.MOST) for name in sizes),
        ("output_limit", not item.HasField("output_limit") or item.output_limit >= 1),
        ("sequences", item.sequences <= 1024),
        (
            "counted_prompt_tokens",
            not item.HasField("counted_prompt_tokens") or 0 <= item.counted_prompt_tokens <= tariff.MOST,
        ),
        ("idempotency_key", len(item.idempotency_key) <= 255),
    )
    return next((name for name, good in checks if not good), "")


def _other(asked: pb.ReserveItem, again: pb.ReserveItem) -> str:
    """The first part of the content that is not as it was asked for."""

    def part(item: pb.ReserveItem, name: str) -> object:
        if name.startswith("prompt."):
            return getattr(item.prompt, name.removeprefix("prompt."))
        optional = name in ("output_limit", "counted_prompt_tokens")
        return getattr(item, name) if not optional or item.HasField(name) else None  # type: ignore[arg-type]

    return next((name for name in CONTENT if part(asked, name) != part(again, name)), "")
