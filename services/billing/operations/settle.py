"""Settle: charge what the worker reported. It never refuses what was really used. Pure."""

from typing import NamedTuple

from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing import ledger, messages, price, usage
from services.billing.books import Books
from services.billing.content import storable
from services.billing.identity import Age, stored_age
from services.billing.ledger import Account, Kind
from services.billing.reservation import Effect, Event, Reservation, State, step
from services.billing.rules import Rules
from services.billing.store.port import Names
from services.billing.usage import Counts
from services.common.money import money_fields

MAX_WORKER_ID_CHARS = 256


class Settle(NamedTuple):
    """One item of SettleRequest."""

    item: pb.SettleItem
    rules: Rules

    def name(self, names: Names) -> None:
        """See Operation."""
        names.reservations.add(self.item.reservation_id)

    def apply(self, books: Books) -> pb.SettleResult:
        """See Operation."""
        item = self.item
        known = books.reservation(item.reservation_id)
        judged = stored_age(item.reservation_id, known, books.now_ms, self.rules.id_age_days)
        if judged is Age.MALFORMED:
            return self._result(pb.SETTLE_STATUS_INVALID, field="reservation_id")
        if judged is Age.EXPIRED:
            return self._result(pb.SETTLE_STATUS_ID_EXPIRED)
        cell = step(known.state if known else State.UNKNOWN, Event.SETTLE)
        if known is None:
            assert cell.effect is Effect.UNKNOWN
            return self._result(pb.SETTLE_STATUS_UNKNOWN)
        counts = usage.read(item.usage, known.operation)
        if isinstance(counts, str):
            return self._about(books, known, pb.SETTLE_STATUS_INVALID, field=counts)
        match cell.effect:
            case Effect.CHARGE:
                return self._charge(books, known, counts, Kind.CHARGE, cell.state)
            case Effect.LATE_CHARGE:
                return self._charge(books, known, counts, Kind.LATE_CHARGE, cell.state)
            case Effect.REPEAT:
                if field := self._difference(known, counts):
                    return self._about(books, known, pb.SETTLE_STATUS_CONFLICT, field=field)
                return self._about(books, known, _done(known.state))
        assert cell.effect is Effect.CONFLICT
        return self._about(books, known, pb.SETTLE_STATUS_CONFLICT)

    def _charge(
        self, books: Books, reservation: Reservation, counts: Counts, kind: Kind, becomes: State
    ) -> pb.SettleResult:
        account = _account(books, reservation)
        amount_nanos = price.charge_nanos(books.price(reservation.price_version).tiers, counts)
        if not ledger.fits(account.balance_nanos, -amount_nanos):
            # Thousands of millions of USD below zero: no real usage.
            return self._about(books, reservation, pb.SETTLE_STATUS_INVALID, field="usage")
        was_held = reservation.state is State.HELD
        books.correct_counters(
            reservation,
            counts.total - (reservation.limit_tokens if was_held else 0),
            amount_nanos - (reservation.hold_nanos if was_held else 0),
        )
        books.close(reservation, account, becomes)
        reservation.charge_nanos = amount_nanos
        reservation.usage = counts
        reservation.worker_id = self._worker_id()
        reservation.attempts = self.item.attempts
        reservation.ending = self.item.ending
        reservation.overrun = amount_nanos > reservation.hold_nanos
        facts = ledger.Charge(
            reservation_id=reservation.reservation_id,
            account_id=account.account_id,
            key_id=reservation.key_id,
            model=reservation.model,
            operation=reservation.operation,
            price_version=reservation.price_version,
            usage=counts,
            worker_id=reservation.worker_id,
            attempts=reservation.attempts,
            ending=reservation.ending,
            hold_nanos=reservation.hold_nanos,
            amount_nanos=amount_nanos,
        )
        books.post(ledger.charge(kind, facts))
        reservation.balance_after_nanos = account.balance_nanos
        return self._about(books, reservation, _done(becomes))

    def _worker_id(self) -> str:
        return storable(self.item.worker_id[:MAX_WORKER_ID_CHARS])

    def _difference(self, known: Reservation, counts: Counts) -> str:
        """The first field in which a repeated settlement differs from the one that was booked."""
        assert known.usage is not None, "a charged reservation has usage"
        for field, stored, sent in (
            ("usage.prompt_tokens", known.usage.prompt, counts.prompt),
            ("usage.cached_prompt_tokens", known.usage.cached, counts.cached),
            ("usage.completion_tokens", known.usage.completion, counts.completion),
            ("worker_id", known.worker_id, self._worker_id()),
            ("attempts", known.attempts, self.item.attempts),
            ("ending", known.ending, self.item.ending),
        ):
            if stored != sent:
                return field
        return ""

    def _about(
        self, books: Books, known: Reservation, status: pb.SettleStatus.ValueType, *, field: str = ""
    ) -> pb.SettleResult:
        """An answer with the reservation as it stands, and the balance: just after its charge, or now if it has none."""
        lease = books.lease(known.reservation_id) if known.state is State.HELD else None
        lease_ms = max(lease.until_ms - books.monotonic_ms, 0) if lease else 0
        balance_nanos = known.balance_after_nanos
        if balance_nanos is None and known.account_id is not None:
            balance_nanos = _account(books, known).balance_nanos
        return pb.SettleResult(
            reservation_id=known.reservation_id,
            status=status,
            field=field,
            reservation=messages.reservation_fields(known, lease_ms),
            balance=None if balance_nanos is None else money_fields(balance_nanos),
        )

    def _result(self, status: pb.SettleStatus.ValueType, *, field: str = "") -> pb.SettleResult:
        return pb.SettleResult(reservation_id=self.item.reservation_id, status=status, field=field)


def _done(state: State) -> pb.SettleStatus.ValueType:
    return pb.SETTLE_STATUS_LATE if state is State.LATE else pb.SETTLE_STATUS_SETTLED


def _account(books: Books, reservation: Reservation) -> Account:
    account = books.account(reservation.account_id or "")
    assert account is not None, "a reservation that was held has an account"
    return account
