"""Streams whose client left and that are read on to be metered, counted by key. Pure; the inference path imports it.

At the bound the key's new streams are refused where leaving them would make another orphan: unless every worker that may
serve them is known to report usage while it streams. Which do is learned from their streams. No orphan is ever released to
make room.
"""

from collections import Counter
from collections.abc import Iterable

# Worker ids are few; forgetting them all is cheap, since each stream teaches anew.
_MAX_LEARNED = 20_000


class Orphans:
    """Counts of one edge."""

    def __init__(self, max_per_key: int) -> None:
        self._max_per_key = max_per_key
        self._by_key: Counter[str] = Counter()
        self._reporting: set[str] = set()

    def __len__(self) -> int:
        return self._by_key.total()

    def learned(self, worker_id: str) -> None:
        """This worker reports usage while it streams."""
        if len(self._reporting) >= _MAX_LEARNED:
            self._reporting.clear()
        self._reporting.add(worker_id)

    def refuses(self, key_id: str, worker_ids: Iterable[str]) -> bool:
        """Whether a new stream of the key, to one of these workers, must be refused."""
        if self._by_key[key_id] < self._max_per_key:
            return False
        return not self._reporting.issuperset(worker_ids)

    def add(self, key_id: str, worker_id: str) -> None:
        """One more, of a worker that did not report usage while it streamed."""
        self._by_key[key_id] += 1
        self._reporting.discard(worker_id)

    def remove(self, key_id: str) -> None:
        """One less."""
        self._by_key[key_id] -= 1
        if self._by_key[key_id] <= 0:
            del self._by_key[key_id]
