"""Which holds are open and how long each still lasts. Pure; the writer owns the only instance.

Leases are measured in monotonic milliseconds of this process, so a step of the wall clock cannot shorten one. After a start,
a failure of the store, or a time in which this process did not run, every open hold has a full lease again: its edge could
not have renewed it. Only the hard end (the request's deadline and some) is fixed when the hold is made.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """Both in monotonic milliseconds."""

    until_ms: int
    hard_end_ms: int
    # How many renewals at other processes have been taken into account.
    renewals: int = 0


class Leases:
    """All open holds."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._open: dict[str, Lease] = {}
        self._seen_ms: int | None = None

    def __len__(self) -> int:
        return len(self._open)

    def get(self, reservation_id: str) -> Lease | None:
        """The lease of an open hold."""
        return self._open.get(reservation_id)

    def granted(self, now_ms: int, life_ms: int) -> Lease:
        """A new lease for a hold that may live for `life_ms` at most. It counts once it is kept."""
        return Lease(now_ms + min(self._lease_ms, life_ms), now_ms + life_ms)

    def extend(self, lease: Lease, now_ms: int) -> bool:
        """Make it last a full lease from now, up to its hard end; never shorter. False where it is at its hard end."""
        if lease.until_ms >= lease.hard_end_ms:
            return False
        lease.until_ms = max(lease.until_ms, min(now_ms + self._lease_ms, lease.hard_end_ms))
        return True

    def keep(self, reservation_id: str, lease: Lease) -> None:
        """A hold is open, on disk."""
        self._open[reservation_id] = lease

    def drop(self, reservation_id: str) -> None:
        """A hold is closed, on disk."""
        self._open.pop(reservation_id, None)

    def lapsed(self, now_ms: int, at_most: int) -> list[str]:
        """Holds whose lease is over."""
        found = [name for name, lease in self._open.items() if lease.until_ms <= now_ms]
        return found[:at_most]

    def look(self, now_ms: int) -> None:
        """Called for every batch, at least once a sweep. After a long silence this process did not run (it was stopped, or
        its machine was): every open hold gets a full lease, whatever its hard end, since nobody could renew it."""
        away = self._seen_ms is not None and now_ms - self._seen_ms > self._lease_ms // 2
        self._seen_ms = now_ms
        if away:
            self._renew_all(now_ms)

    def restart(self, now_ms: int, wall_ms: int, holds: Iterable[tuple[str, int, int]]) -> None:
        """Begin anew from the store: ids of open holds with the wall-clock moments of making and hard end.

        What the wall clock says is left of a life is believed only between a lease and the whole life, since it may have
        been stepped.
        """
        self._open.clear()
        self.compare(now_ms, wall_ms, holds)

    def compare(self, now_ms: int, wall_ms: int, holds: Iterable[tuple[str, int, int]]) -> None:
        """Take note of what other processes opened (each with a full lease) and closed. Arguments as for `restart`."""
        known, self._open = self._open, {}
        for reservation_id, made_at_ms, hard_end_ms in holds:
            lease = known.get(reservation_id) or self.found(now_ms, wall_ms, made_at_ms, hard_end_ms)
            self._open[reservation_id] = lease

    def found(self, now_ms: int, wall_ms: int, made_at_ms: int, hard_end_ms: int) -> Lease:
        """A full lease for a hold that somebody else made, or this process before it was started again."""
        left_ms = min(hard_end_ms - wall_ms, hard_end_ms - made_at_ms)
        return Lease(now_ms + self._lease_ms, now_ms + max(left_ms, self._lease_ms))

    def _renew_all(self, now_ms: int) -> None:
        for lease in self._open.values():
            lease.until_ms = max(lease.until_ms, now_ms + self._lease_ms)
            lease.hard_end_ms = max(lease.hard_end_ms, lease.until_ms)
