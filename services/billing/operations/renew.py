"""Renew: an open hold lasts longer. Pure. Nothing is stored, since a restart gives every open hold a full lease anyhow; only
where another process sweeps, it must be told."""

from typing import NamedTuple

from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.books import Books
from services.billing.reservation import Effect, Event, State, step
from services.billing.store.port import Names


class Renew(NamedTuple):
    """One item of RenewRequest."""

    item: pb.RenewItem

    def name(self, names: Names) -> None:
        """See Operation."""
        names.reservations.add(self.item.reservation_id)

    def apply(self, books: Books) -> pb.RenewResult:
        """See Operation."""
        known = books.reservation(self.item.reservation_id)
        effect = step(known.state if known else State.UNKNOWN, Event.RENEW).effect
        result = pb.RenewResult(reservation_id=self.item.reservation_id)
        if effect is Effect.EXTEND:
            assert known is not None, "what is open is known"
            lease, extended = books.renew(known)
            result.status = pb.RENEW_STATUS_RENEWED if extended else pb.RENEW_STATUS_AT_HARD_END
            result.lease_ms = max(lease.until_ms - books.monotonic_ms, 0)
        else:
            result.status = pb.RENEW_STATUS_UNKNOWN if effect is Effect.UNKNOWN else pb.RENEW_STATUS_CLOSED
        return result
