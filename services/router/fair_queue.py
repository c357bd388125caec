"""Who waits for a worker's place, and whose turn it is. Pure; `places.py` owns one per model.

Turns go round the parties, not the requests: a party that waits with a hundred requests gets as many turns as one that waits
with one. Bounded: at the bound the newest request of the party that waits with the most makes room, unless that is the
newcomer's own.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Waiting items of one model, by party."""

    def __init__(self, max_per_party: int) -> None:
        self._max_per_party = max_per_party
        # In the order of their turns. An inner dict is an ordered set: items leave from anywhere at once.
        self._parties: OrderedDict[str, dict[T, None]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[T]:
        for items in self._parties.values():
            yield from items

    def push(self, party: str, item: T, max_waiting: int) -> T | None:
        """Let an item wait behind its party's others. Answers the one that must go for it, where `max_waiting` wait
        already: None, another's, or `item`."""
        items = self._parties.get(party)
        if items is not None and len(items) >= self._max_per_party:
            return item
        gone = None
        if self._waiting >= max_waiting:
            # The longest is looked for only when the queue is full, and full queues are refused in any case.
            longest = max(self._parties, key=lambda each: len(self._parties[each]), default=party)
            if (items is not None and len(items) >= len(self._parties[longest])) or not self._parties:
                return item
            gone = next(reversed(self._parties[longest]))
            self.remove(longest, gone)
        self._parties.setdefault(party, {})[item] = None
        self._waiting += 1
        return gone

    def remove(self, party: str, item: T) -> bool:
        """Take an item out, wherever it stands. False if it does not wait."""
        items = self._parties.get(party)
        if items is None or item not in items:
            return False
        del items[item]
        self._waiting -= 1
        if not items:
            del self._parties[party]
        return True

    def next(self, fits: Callable[[T], bool]) -> T | None:
        """Take out the first item, in the order of turns, that fits; its party's next turn is the last. None if none does."""
        for party, items in self._parties.items():
            for item in items:
                if fits(item):
                    self.remove(party, item)
                    if party in self._parties:
                        self._parties.move_to_end(party)
                    return item
        return None
