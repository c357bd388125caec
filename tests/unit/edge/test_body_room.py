"""Room for bodies: never overdrawn, and given back."""

import pytest

from services.common.settings import EdgeLimits
from services.edge.body_room import BodyRoom
from services.edge.openai_errors import Refused


def test_what_has_come_takes_room_and_what_is_announced_does_not() -> None:
    room = BodyRoom(100, 100)
    first, second = room.claim("a"), room.claim("b")
    first.expect(100)
    second.expect(100)
    assert room.held_bytes == 0
    first.grow(60)
    with pytest.raises(Refused) as refused:
        room.claim("c").expect(41)
    assert (refused.value.problem.status, refused.value.problem.code) == (503, "overloaded")
    assert refused.value.problem.headers() == {"retry-after": "1"}
    second.grow(40)
    with pytest.raises(Refused):
        second.grow(1)
    with pytest.raises(Refused):
        room.claim("c").expect(0)
    assert room.held_bytes == 100
    second.release()
    second.release()
    room.claim("c").expect(40)
    first.release()
    assert room.held_bytes == 0


def test_an_owner_has_its_share_and_leaves_the_rest_to_others() -> None:
    room = BodyRoom(100, 60)
    first, second, other = room.claim("a"), room.claim("a"), room.claim("b")
    first.grow(40)
    second.expect(20)
    with pytest.raises(Refused):
        second.expect(21)
    second.grow(20)
    with pytest.raises(Refused):
        second.grow(1)
    other.grow(40)
    first.release()
    second.grow(40)
    assert room.held_bytes == 100
    second.release()
    other.release()
    assert room.held_bytes == 0


def test_the_room_has_room_for_one_body_at_least() -> None:
    with pytest.raises(ValueError, match="max_bodies_bytes must be at least max_body_bytes"):
        EdgeLimits(max_body_bytes=1001, max_bodies_bytes=1000)
