"""What both ends of a relay must agree on, and the counting of credit. Pure; edge and router import it.

docs/decisions/0014 says what credit is for. Invariants: both ends count a frame the same; while the edge has taken all that
came, the router has credit (`Repayment` gives back before `Allowance` can be spent); what was given never exceeds what was
agreed on first by more than what was taken.
"""

from collections import deque
from typing import Generic, TypeVar

from speedinfer.router.v1.frame_pb2 import Frame

from services.common.errors import InvalidArgument

PROTOCOL = 1
# What one request may be ahead of its client.
WINDOW_BYTES = 64 * 1024
# The most that an edge may give to one.
MAX_CREDIT_BYTES = 16 * 1024 * 1024
# What a frame, or a part of one, counts beside its bytes.
FRAME_BYTES = 64
# A frame above this goes in parts of so many bytes.
PART_BYTES = 64 * 1024
# Items are put into one message until it has so many.
MESSAGE_BYTES = 256 * 1024
# A request above this goes by a call of its own.
MAX_START_BYTES = 256 * 1024


def cost(frame: Frame) -> int:
    """What a frame counts, in bytes."""
    kind = frame.WhichOneof("frame")
    if kind == "data":
        return FRAME_BYTES + sum(map(len, frame.data.payloads))
    if kind == "end":
        return FRAME_BYTES + len(frame.end.usage_frame)
    return FRAME_BYTES


class Allowance:
    """What a router may still send for one request. It may be overdrawn, by what was read already."""

    __slots__ = ("_left", "_most")

    def __init__(self, credit_bytes: int, most_bytes: int = MAX_CREDIT_BYTES) -> None:
        self._left = 0
        self._most = most_bytes
        self.add(credit_bytes)

    @property
    def is_spent(self) -> bool:
        """Nothing more is to be read."""
        return self._left <= 0

    @property
    def left_bytes(self) -> int:
        """Below zero where it is overdrawn."""
        return self._left

    def spend(self, spent_bytes: int) -> None:
        """So much was sent."""
        self._left -= spent_bytes

    def add(self, credit_bytes: int) -> None:
        """The edge gave more. InvalidArgument if it gives more than it may."""
        if self._left + credit_bytes > self._most:
            raise InvalidArgument(f"more credit than {self._most} bytes", field="credit_bytes")
        self._left += credit_bytes


class Repayment:
    """What an edge has taken of one request and not yet given back."""

    __slots__ = ("_owed", "_step")

    def __init__(self, window_bytes: int) -> None:
        self._owed = 0
        # Half of it at a time: seldom, and before the other end has nothing left.
        self._step = max(window_bytes // 2, 1)

    def took(self, taken_bytes: int) -> int:
        """So much was taken; answers what is to be given back now, mostly nothing."""
        self._owed += taken_bytes
        if self._owed < self._step:
            return 0
        owed, self._owed = self._owed, 0
        return owed


Message = TypeVar("Message")


class Outgoing(Generic[Message]):
    """Messages that wait to be sent, in order; the last one grows while it waits, up to a bound."""

    def __init__(self, make: type[Message], message_bytes: int = MESSAGE_BYTES) -> None:
        self._make = make
        self._message_bytes = message_bytes
        self._waiting: deque[Message] = deque()
        self._sizes: deque[int] = deque()
        # In all that wait.
        self.waiting_bytes = 0
        # How many were taken up to now.
        self.taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def last_number(self) -> int:
        """Which message, counted from 1, the item that was put last went into."""
        return self.taken + len(self._waiting)

    def room(self, item_bytes: int) -> Message:
        """The message into which the next item, of so many bytes, is to be put by the caller, now."""
        if not self._waiting or self._sizes[-1] + item_bytes > self._message_bytes:
            self._waiting.append(self._make())
            self._sizes.append(0)
        self._sizes[-1] += item_bytes
        self.waiting_bytes += item_bytes
        return self._waiting[-1]

    def take(self) -> Message | None:
        """The message that goes next; None if nothing waits."""
        if not self._waiting:
            return None
        self.taken += 1
        self.waiting_bytes -= self._sizes.popleft()
        return self._waiting.popleft()
