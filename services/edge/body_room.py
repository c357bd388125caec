"""Room for the bodies that are being read, in bytes, over all requests. Pure; `inference.py` and `body.py` import it.

Only who is known keeps a body here, and nobody more than a share, so that one key leaves room for others.
What is counted is what has come, unpacked, until the request is admitted; a length that is only announced takes no room from
anybody. A body is refused before it is read where there is no room for what it announces, and later where it grows beyond
what is left: the room is never overdrawn by more than one piece, and each refusal gives room back to those that go on.
"""

from collections import Counter

from services.edge.openai_errors import TOO_MANY_BODIES, Refused


class BodyRoom:
    """The room of one edge."""

    def __init__(self, max_bytes: int, max_owner_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_owner_bytes = max_owner_bytes
        self._by_owner: Counter[str] = Counter()
        self.held_bytes = 0

    def claim(self, owner: str) -> "BodyClaim":
        """A claim that holds nothing yet. Whoever has it releases it."""
        return BodyClaim(self, owner)

    def has(self, owner: str, size_bytes: int) -> bool:
        """Whether there is room for so many bytes more."""
        return (
            self.held_bytes + size_bytes <= self._max_bytes
            and self._by_owner[owner] + size_bytes <= self._max_owner_bytes
        )

    def add(self, owner: str, size_bytes: int) -> None:
        """So many bytes more are held; less than zero: given back."""
        self.held_bytes += size_bytes
        self._by_owner[owner] += size_bytes
        if not self._by_owner[owner]:
            del self._by_owner[owner]


class BodyClaim:
    """What one body holds."""

    def __init__(self, room: BodyRoom, owner: str) -> None:
        self._room = room
        self._owner = owner
        self._held_bytes = 0

    def expect(self, announced_bytes: int) -> None:
        """Before anything is read. Refused (503) if there is no room for it, or for anything at all."""
        if not self._room.has(self._owner, max(announced_bytes, 1)):
            raise Refused(TOO_MANY_BODIES)

    def grow(self, size_bytes: int) -> None:
        """So much more has come. Refused (503) if there is no room for it."""
        if not self._room.has(self._owner, size_bytes):
            raise Refused(TOO_MANY_BODIES)
        self._held_bytes += size_bytes
        self._room.add(self._owner, size_bytes)

    def release(self) -> None:
        """Give it all back; once more does nothing."""
        if self._held_bytes:
            self._room.add(self._owner, -self._held_bytes)
            self._held_bytes = 0
