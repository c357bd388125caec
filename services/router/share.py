"""How many of a worker's places are this router's, where routers share a registry: pure. `following.py` owns one.

An equal share each. Exact while the routers' leases hold, by three rules (docs/decisions/0016):
- shrink at once, grow when all have agreed: a router that sees others than before keeps to the smallest share that it had in
  what it saw since all last agreed; who it sees is in its row, and all have agreed when the rows of all say the same;
- what runs above one's share is in one's row, and each of the others leaves as many of its own places free;
- one that leaves has no share, and what runs on it is taken off the others' shares, evenly.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from services.router.store.port import Member

# More changes without agreement in between are not remembered.
MAX_VIEWS = 32

View = tuple[str, ...]


class Shares:
    """One router's."""

    def __init__(self, router_id: str) -> None:
        self.router_id = router_id
        self.leaving = False
        # Whom it saw since all last agreed, in order; nobody at first, so that a new router has nothing until all know it.
        self._views: list[View] = [()]
        self._leaving: Counter[str] = Counter()
        self._excess: Counter[str] = Counter()

    @property
    def agreed(self) -> str:
        """For the row: whom it sees, in short."""
        return _digest(self._views[-1])

    @property
    def settled(self) -> bool:
        """All routers see the same."""
        return len(self._views) == 1 and bool(self._views[0])

    @property
    def routers(self) -> int:
        """How many share."""
        return len(self._views[-1])

    def leave(self) -> None:
        """Have no share any more. To be told to the others, with all that runs as excess."""
        self.leaving = True

    def see(self, members: Sequence[Member]) -> bool:
        """What the rows say now, this router's own among them. True if that row is to be written anew."""
        view = tuple(sorted(member.router_id for member in members if not member.leaving))
        is_news = view != self._views[-1]
        if is_news:
            self._views = [*self._views, view][-MAX_VIEWS:]
        if all(member.agreed == _digest(view) for member in members if not member.leaving):
            self._views = [view]
        self._leaving, self._excess = Counter(), Counter()
        for member in members:
            if member.leaving:
                self._leaving.update(member.excess)
            elif member.router_id != self.router_id:
                self._excess.update(member.excess)
        return is_news

    def share(self, worker_id: str, bound: int) -> int:
        """This router's part of a worker's `bound` places."""
        if self.leaving:
            return 0
        least = min(_share(view, self.router_id, worker_id, bound) for view in self._views)
        return max(0, least - _part(self._views[-1], self.router_id, worker_id, self._leaving[worker_id]))

    def room(self, worker_id: str, bound: int) -> int:
        """How many requests this router may have on the worker: its share, less what others have above theirs."""
        return max(0, self.share(worker_id, bound) - self._excess[worker_id])

    def excess(self, running: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """For the row: what runs above the share. `running`: worker id -> requests and bound."""
        above = ((each, in_flight - self.share(each, bound)) for each, (in_flight, bound) in running.items())
        return {worker_id: number for worker_id, number in above if number > 0}


def _share(view: View, router_id: str, worker_id: str, bound: int) -> int:
    # One at least: a worker with fewer places than routers would else be of no use to some of them.
    return max(1, _part(view, router_id, worker_id, bound)) if router_id in view else 0


def _part(view: View, router_id: str, worker_id: str, number: int) -> int:
    """An even part of a number; of a larger number it is never smaller. The parts of all come to the number."""
    if router_id not in view:
        return 0
    # Who gets one more differs from worker to worker.
    turn = (view.index(router_id) + zlib.crc32(worker_id.encode())) % len(view)
    return (number + len(view) - 1 - turn) // len(view)


def _digest(view: View) -> str:
    return hashlib.sha256(" ".join(view).encode()).hexdigest()[:16]
