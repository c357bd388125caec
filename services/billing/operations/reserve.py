"""Reserve: judge key, model, limits and balance in one step, and set the hold aside. Pure.

The reasons for a refusal are looked at in the order of RefusalReason, and a refusal stores nothing; of one reason, the key's
side is looked at before the account's. An account whose balance
is below its credit limit (zero where it is prepaid) holds nothing at all, not even for free.
"""

from typing import NamedTuple

from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing import hold, limits, messages
from services.billing.books import Books
from services.billing.content import canonical, first_difference
from services.billing.identity import Age, stored_age
from services.billing.key import Key, Status
from services.billing.ledger import Account
from services.billing.price import PriceVersion
from services.billing.reservation import Effect, Event, Reservation, State, step
from services.billing.rules import Rules
from services.billing.store.port import Names
from services.common.money import MAX_NANOS, to_money

# When a hold of the account's own may have ended.
IN_FLIGHT_RETRY_MS = 1_000


class Reserve(NamedTuple):
    """One item of ReserveRequest."""

    item: pb.ReserveItem
    rules: Rules

    def name(self, names: Names) -> None:
        """See Operation."""
        item = self.item
        names.reservations.add(item.reservation_id)
        names.keys.add(item.key_id)
        if item.idempotency_key:
            names.bearers.add((item.key_id, item.idempotency_key))

    def apply(self, books: Books) -> pb.ReserveResult:
        """See Operation."""
        item = self.item
        known = books.reservation(item.reservation_id)
        judged = stored_age(item.reservation_id, known, books.now_ms, self.rules.id_age_days)
        if judged is Age.MALFORMED:
            return self._refuse(pb.REFUSAL_REASON_INVALID, "the reservation id is not a UUIDv7", field="reservation_id")
        if field := hold.invalid_field(item):
            return self._refuse(pb.REFUSAL_REASON_INVALID, f"{field} has an impossible value", field=field)
        if judged is Age.EXPIRED:
            return self._refuse(pb.REFUSAL_REASON_ID_EXPIRED, "the reservation id is older than ids are kept")
        effect = step(known.state if known else State.UNKNOWN, Event.RESERVE).effect
        if known is None:
            assert effect is Effect.GUARD
            return self._guard(books, judged)
        if effect is Effect.REPEAT and (field := first_difference(known.asked, item)):
            return self._refuse(pb.REFUSAL_REASON_CONFLICT, f"the id was used with another {field}", field=field)
        return self._answer(books, known)

    def _guard(self, books: Books, judged: Age) -> pb.ReserveResult:
        item = self.item
        if judged is Age.FUTURE:
            return self._refuse(
                pb.REFUSAL_REASON_INVALID, "the reservation id is of the future", field="reservation_id"
            )
        key = books.key(item.key_id)
        if key is None or key.status(books.now_ms) is not Status.ACTIVE:
            return self._refuse(pb.REFUSAL_REASON_INVALID_KEY, "the key is unknown, revoked or expired")
        account = books.account(key.account_id)
        assert account is not None, "a key has an account"
        if account.closed_at_ms is not None:
            return self._refuse(pb.REFUSAL_REASON_ACCOUNT_CLOSED, "the account is closed")
        if account.limits.ended(books.now_ms):
            return self._refuse(pb.REFUSAL_REASON_ACCOUNT_CLOSED, "the account's end is reached")
        for whose, allowed in (("key", key.limits), ("account", account.limits)):
            if not allowed.allow(item.model):
                return self._refuse(
                    pb.REFUSAL_REASON_MODEL_NOT_ALLOWED, f"the {whose} may not use the model {item.model}"
                )
        price = books.price_now(item.model, account.account_id)
        if price is None:
            return self._refuse(pb.REFUSAL_REASON_MODEL_NOT_PRICED, f"the model {item.model} has no price in effect")
        bound = hold.bound(item, price)
        if bound is None:
            # Only the model's record tells, so it is looked at this late.
            return self._refuse(pb.REFUSAL_REASON_INVALID, "the model takes no images", field="prompt.images")
        if item.idempotency_key and (bearer := books.bearer(account.account_id, item.idempotency_key)):
            return self._duplicate(*bearer)
        refused = self._limited(books, key, account, bound) or self._unaffordable(
            books, key, account, price, bound.hold_nanos
        )
        return refused or self._hold(books, key, account, price, bound)

    def _limited(self, books: Books, key: Key, account: Account, bound: hold.Bound) -> pb.ReserveResult | None:
        asked = (bound.limit_tokens, bound.hold_nanos, books.now_ms)
        reached = None
        if key.limits.counted or key.limits.concurrency is not None:
            open_holds = books.open_holds(key) if key.limits.concurrency is not None else 0
            reached = limits.judge(key.limits, books.counters(key), open_holds, *asked)
        if reached is None:
            reached = limits.judge(
                account.limits, account.counters.at(books.now_ms), account.open_holds, *asked, "account"
            )
        if reached is None:
            return None
        result = self._refuse(pb.REFUSAL_REASON_LIMIT, reached.message)
        result.refusal.limit = reached.limit
        result.refusal.retry_after_ms = reached.retry_after_ms
        self._add_limits(result, books, key)
        return result

    def _unaffordable(
        self, books: Books, key: Key, account: Account, price: PriceVersion, hold_nanos: int
    ) -> pb.ReserveResult | None:
        if hold_nanos <= account.available_nanos and account.credit_nanos >= 0:
            return None
        if account.credit_nanos >= hold_nanos:
            result = self._refuse(
                pb.REFUSAL_REASON_HOLDS_IN_FLIGHT, "the account's credit is set aside for its own open requests"
            )
            result.refusal.retry_after_ms = IN_FLIGHT_RETRY_MS
        else:
            result = self._refuse(pb.REFUSAL_REASON_INSUFFICIENT_CREDIT, "the account's credit does not suffice")
            result.refusal.count_may_help = hold.count_may_help(self.item, price, account.credit_nanos)
        result.refusal.hold.CopyFrom(to_money(min(hold_nanos, MAX_NANOS)))
        result.refusal.available.CopyFrom(to_money(account.available_nanos))
        self._add_limits(result, books, key)
        return result

    def _hold(
        self, books: Books, key: Key, account: Account, price: PriceVersion, bound: hold.Bound
    ) -> pb.ReserveResult:
        item, rules = self.item, self.rules
        deadline_ms = min(item.context.remaining_ms or rules.default_deadline_ms, rules.max_deadline_ms)
        life_ms = deadline_ms + rules.after_deadline_ms
        reservation = Reservation(
            reservation_id=item.reservation_id,
            state=step(State.UNKNOWN, Event.RESERVE).state,
            created_at_ms=books.now_ms,
            account_id=account.account_id,
            key_id=key.key_id,
            model=item.model,
            operation=item.operation,
            hold_nanos=bound.hold_nanos,
            output_limit=bound.output_limit,
            price_version=price.version,
            limit_tokens=bound.limit_tokens,
            idempotency_key=item.idempotency_key,
            asked=canonical(item),
            hard_end_ms=books.now_ms + life_ms,
        )
        if key.limits.counted:
            counters = books.counters(key)
            counters.count(bound.limit_tokens, bound.hold_nanos)
            books.keep_counters(key, counters)
        account.counters.roll(books.now_ms)
        account.counters.count(bound.limit_tokens, bound.hold_nanos)
        books.hold(reservation, account, books.leases.granted(books.monotonic_ms, life_ms))
        return self._answer(books, reservation)

    def _answer(self, books: Books, reservation: Reservation) -> pb.ReserveResult:
        lease = books.lease(reservation.reservation_id) if reservation.state is State.HELD else None
        lease_ms = max(lease.until_ms - books.monotonic_ms, 0) if lease else 0
        result = pb.ReserveResult(
            reservation_id=self.item.reservation_id, reservation=messages.reservation_fields(reservation, lease_ms)
        )
        if (key := books.key(reservation.key_id)) is not None:
            self._add_limits(result, books, key)
        return result

    def _add_limits(self, result: pb.ReserveResult, books: Books, key: Key) -> None:
        """Of the key's limits and the account's the tighter: the one that the next request would meet."""
        account = books.account(key.account_id)
        assert account is not None, "a key has an account"
        own, common = key.limits, account.limits
        if not (own.by_the_minute or common.by_the_minute):
            return
        mine = books.counters(key).minute if own.counted else limits.Window()
        ours = account.counters.at(books.now_ms).minute
        requests = limits.tighter((own.requests_per_minute, mine.requests), (common.requests_per_minute, ours.requests))
        tokens = limits.tighter((own.tokens_per_minute, mine.tokens), (common.tokens_per_minute, ours.tokens))
        result.limits.CopyFrom(
            pb.LimitState(
                requests_limit=requests[0] if requests else None,
                requests_remaining=requests[1] if requests else 0,
                tokens_limit=tokens[0] if tokens else None,
                tokens_remaining=tokens[1] if tokens else 0,
                reset_ms=limits.minute_rest_ms(books.now_ms),
            )
        )

    def _duplicate(self, other_id: str, state: State) -> pb.ReserveResult:
        result = self._refuse(pb.REFUSAL_REASON_DUPLICATE_REQUEST, f"the Idempotency-Key belongs to request {other_id}")
        result.refusal.other_request_id = other_id
        result.refusal.other_charged = state.charged
        return result

    def _refuse(self, reason: pb.RefusalReason.ValueType, message: str, *, field: str = "") -> pb.ReserveResult:
        refusal = pb.Refusal(reason=reason, message=message, field=field)
        return pb.ReserveResult(reservation_id=self.item.reservation_id, refusal=refusal)
