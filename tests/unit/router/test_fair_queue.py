"""Turns between parties, bounds, and leaving from anywhere."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from services.router.fair_queue import FairQueue


def anything(_item: object) -> bool:
    return True


def drained(queue: FairQueue[str]) -> list[str]:
    taken: list[str] = []
    while (item := queue.next(anything)) is not None:
        taken.append(item)
    return taken


def test_turns_go_round_the_parties_and_each_keeps_its_order() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for item in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
        assert queue.push(item[0], item, 100) is None
    assert drained(queue) == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]
    assert len(queue) == 0


def test_a_party_that_comes_later_does_not_wait_for_a_crowd() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    for number in range(100):
        queue.push("crowd", f"crowd{number}", 1000)
    assert queue.next(anything) == "crowd0"
    queue.push("late", "late0", 1000)
    assert [queue.next(anything), queue.next(anything)] == ["crowd1", "late0"]


def test_what_does_not_fit_is_passed_over_and_keeps_its_place() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for item in ("a1", "a2", "b1"):
        queue.push(item[0], item, 3)
    assert queue.next(lambda item: item == "a2") == "a2"
    assert queue.next(lambda item: item == "none") is None
    assert drained(queue) == ["b1", "a1"]


def test_a_party_waits_with_so_many_and_no_more() -> None:
    queue: FairQueue[str] = FairQueue(2)
    assert [queue.push("a", item, 100) for item in ("a1", "a2", "a3")] == [None, None, "a3"]
    assert queue.push("b", "b1", 100) is None


def test_a_full_queue_makes_room_at_the_cost_of_whoever_waits_with_the_most() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for item in ("a1", "a2", "b1"):
        queue.push(item[0], item, 3)
    assert queue.push("c", "c1", 3) == "a2"
    # Nobody waits with more than one now: the newcomer of the longest goes itself.
    assert queue.push("a", "a9", 3) == "a9"
    assert sorted(queue) == ["a1", "b1", "c1"]


def test_whoever_leaves_is_not_waited_for() -> None:
    queue: FairQueue[str] = FairQueue(3)
    for item in ("a1", "a2", "b1"):
        queue.push(item[0], item, 3)
    assert queue.remove("a", "a1")
    assert not queue.remove("a", "a1")
    assert not queue.remove("z", "a2")
    assert len(queue) == 2
    assert drained(queue) == ["a2", "b1"]


@given(st.lists(st.tuples(st.sampled_from(["push", "next", "remove"]), st.sampled_from("abcd")), max_size=60))
def test_nothing_is_lost_doubled_or_out_of_its_partys_order(steps: list[tuple[str, str]]) -> None:
    queue: FairQueue[str] = FairQueue(4)
    waiting: dict[str, deque[str]] = {party: deque() for party in "abcd"}
    for number, (step, party) in enumerate(steps):
        item = f"{party}{number}"
        if step == "push":
            gone = queue.push(party, item, 6)
            if gone != item:
                waiting[party].append(item)
            if gone is not None and gone != item:
                assert waiting[gone[0]].pop() == gone
        elif step == "next":
            taken = queue.next(anything)
            assert (taken is None) == (not any(waiting.values()))
            if taken is not None:
                assert waiting[taken[0]].popleft() == taken
        elif waiting[party]:
            leaving = waiting[party].pop()
            assert queue.remove(party, leaving)
        assert sorted(queue) == sorted(each for items in waiting.values() for each in items)
        assert len(queue) <= 6
