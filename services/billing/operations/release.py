"""Release and lapse: give a hold back without a charge. Pure."""

from typing import NamedTuple

from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import UInt32Value
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.books import Books
from services.billing.identity import Age, stored_age
from services.billing.reservation import Effect, Event, Reservation, State, step
from services.billing.rules import Rules
from services.billing.store.port import Names

MAX_CAUSE_CHARS = 128
MAX_WORKER_CHARS = 128


class Release(NamedTuple):
    """One item of ReleaseRequest."""

    item: pb.ReleaseItem
    rules: Rules

    def name(self, names: Names) -> None:
        """See Operation."""
        names.reservations.add(self.item.reservation_id)

    def apply(self, books: Books) -> pb.ReleaseResult:
        """See Operation."""
        known = books.reservation(self.item.reservation_id)
        judged = stored_age(self.item.reservation_id, known, books.now_ms, self.rules.id_age_days)
        if judged is Age.MALFORMED:
            return self._result(pb.RELEASE_STATUS_INVALID)
        if judged is Age.EXPIRED:
            return self._result(pb.RELEASE_STATUS_ID_EXPIRED)
        cell = step(known.state if known else State.UNKNOWN, Event.RELEASE)
        if known is None:
            assert cell.effect is Effect.REMEMBER
            return self._remember(books, judged, cell.state)
        match cell.effect:
            case Effect.CONFLICT:
                return self._result(pb.RELEASE_STATUS_CONFLICT)
            case Effect.GIVE_BACK:
                known.cause = self.item.cause[:MAX_CAUSE_CHARS]
                known.worker_id, known.attempts = self.item.worker_id[:MAX_WORKER_CHARS], self.item.attempts
                _give_back(books, known, cell.state)
        expired = known.state is State.EXPIRED
        return self._result(pb.RELEASE_STATUS_EXPIRED if expired else pb.RELEASE_STATUS_RELEASED)

    def _remember(self, books: Books, judged: Age, state: State) -> pb.ReleaseResult:
        if judged is Age.FUTURE:
            return self._result(pb.RELEASE_STATUS_INVALID)
        books.remember(
            Reservation(
                reservation_id=self.item.reservation_id,
                state=state,
                created_at_ms=books.now_ms,
                closed_at_ms=books.now_ms,
                cause=self.item.cause[:MAX_CAUSE_CHARS],
            )
        )
        return self._result(pb.RELEASE_STATUS_RELEASED)

    def _result(self, status: pb.ReleaseStatus.ValueType) -> pb.ReleaseResult:
        return pb.ReleaseResult(reservation_id=self.item.reservation_id, status=status)


class Lapse(NamedTuple):
    """The sweep: every hold whose lease is over turns EXPIRED. Answers how many did."""

    at_most: int

    def name(self, names: Names) -> None:
        """See Operation. Which ones it is about is known only when it is applied."""

    def apply(self, books: Books) -> Message:
        """See Operation."""
        if not books.sweeps:
            return UInt32Value(value=0)
        lapsed = books.leases.lapsed(books.monotonic_ms, self.at_most)
        if lapsed:
            books.fetch(Names(reservations=set(lapsed)))
        # Looked for once the accounts are locked, so that nobody renews them meanwhile.
        renewed = books.renewed_elsewhere(lapsed) if lapsed else set()
        count = 0
        for reservation_id in lapsed:
            if reservation_id in renewed:
                continue
            known = books.reservation(reservation_id)
            cell = step(known.state if known else State.UNKNOWN, Event.LAPSE)
            if known is None or cell.effect is not Effect.GIVE_BACK:
                # An earlier item of this batch closed it.
                books.closed.add(reservation_id)
                continue
            _give_back(books, known, cell.state)
            count += 1
        return UInt32Value(value=count)


def _give_back(books: Books, reservation: Reservation, becomes: State) -> None:
    account = books.account(reservation.account_id or "")
    assert account is not None, "a hold has an account"
    books.correct_counters(reservation, -reservation.limit_tokens, -reservation.hold_nanos)
    books.close(reservation, account, becomes)
