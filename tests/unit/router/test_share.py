"""Shares of a worker's places: even, and together never more than the worker's bound, whoever comes, goes, lags or is full."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.share import Shares
from services.router.store.port import Member

W = "w1"


@dataclass
class Router:
    """One router and what runs on it."""

    shares: Shares
    running: int = 0


class Scene:
    """Routers and the rows that they write. A look is two steps, between which anything may happen to the others."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.rows: dict[str, Member] = {}
        self.routers: dict[str, Router] = {}

    def join(self, name: str) -> None:
        self.routers.setdefault(name, Router(Shares(name)))

    def write(self, name: str) -> None:
        router = self.routers[name]
        excess = router.shares.excess({W: (router.running, self.bound)})
        self.rows[name] = Member(name, 0, router.shares.agreed, router.shares.leaving, excess)

    def read(self, name: str) -> None:
        """After a write of its own."""
        if name in self.rows:
            self.routers[name].shares.see(list(self.rows.values()))

    def look(self, name: str) -> None:
        self.write(name)
        self.read(name)

    def fill(self, name: str) -> None:
        """As many requests as it has room for."""
        router = self.routers[name]
        router.running = max(router.running, router.shares.room(W, self.bound))

    def settle(self) -> None:
        for _ in range(4):
            for name in self.routers:
                self.look(name)

    def rooms(self) -> list[int]:
        return [router.shares.room(W, self.bound) for router in self.routers.values()]

    @property
    def running(self) -> int:
        return sum(router.running for router in self.routers.values())


@pytest.mark.parametrize(
    ("bound", "routers", "expected"),
    [(10, 3, [3, 3, 4]), (9, 3, [3, 3, 3]), (3, 3, [1, 1, 1]), (1, 1, [1]), (2, 3, [1, 1, 1]), (7, 2, [3, 4])],
)
def test_shares_are_even_and_one_at_least(bound: int, routers: int, expected: list[int]) -> None:
    scene = Scene(bound)
    for number in range(routers):
        scene.join(f"r{number}")
    scene.settle()
    assert sorted(scene.rooms()) == expected


def test_who_has_the_larger_share_differs_from_worker_to_worker() -> None:
    scene = Scene(1)
    scene.join("a")
    scene.join("b")
    scene.settle()
    shares = scene.routers["a"].shares
    assert {shares.room(f"w{number}", 5) for number in range(20)} == {2, 3}


def test_a_new_router_has_nothing_until_the_others_know_it() -> None:
    scene = Scene(10)
    scene.join("a")
    scene.settle()
    scene.join("b")
    scene.look("b")
    scene.look("b")
    assert scene.routers["b"].shares.room(W, 10) == 0
    assert scene.routers["a"].shares.room(W, 10) == 10
    scene.settle()
    assert scene.rooms() == [5, 5]


def test_a_dead_routers_share_returns_when_its_row_is_gone() -> None:
    scene = Scene(10)
    scene.join("a")
    scene.join("b")
    scene.settle()
    del scene.routers["b"]
    scene.settle()
    assert scene.rooms() == [5]
    del scene.rows["b"]
    scene.settle()
    assert scene.rooms() == [10]


def test_one_that_leaves_keeps_only_what_runs() -> None:
    scene = Scene(10)
    for name in "abc":
        scene.join(name)
    scene.settle()
    scene.routers["c"].running = 3
    scene.routers["c"].shares.leave()
    scene.settle()
    a, b, c = scene.rooms()
    assert c == 0
    assert a + b == 7
    scene.routers["c"].running = 0
    scene.settle()
    assert scene.rooms() == [5, 5, 0]


def test_what_runs_above_a_share_is_left_free_by_a_new_router() -> None:
    scene = Scene(10)
    scene.join("a")
    scene.settle()
    scene.fill("a")
    scene.join("b")
    scene.settle()
    assert scene.rooms() == [5, 0]
    scene.routers["a"].running = 7
    scene.settle()
    assert scene.rooms() == [5, 3]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["join", "write", "read", "look", "fill", "end", "leave", "gone"]), st.sampled_from("abcd")
    ),
    max_size=120,
)


@given(STEPS, st.integers(4, 11))
@settings(max_examples=150)
def test_together_never_more_than_the_bound(steps: list[tuple[str, str]], bound: int) -> None:
    scene = Scene(bound)
    for step, name in steps:
        router = scene.routers.get(name)
        if step == "join":
            scene.join(name)
        elif router is None:
            continue
        elif step == "write":
            scene.write(name)
        elif step == "read":
            scene.read(name)
        elif step == "look":
            scene.look(name)
        elif step == "fill":
            scene.fill(name)
        elif step == "end":
            router.running = max(0, router.running - 1)
        elif step == "leave":
            router.shares.leave()
        elif step == "gone" and router.shares.leaving and not router.running:
            # Its name is never used again: a router that starts has a new one.
            scene.rows.pop(name, None)
        assert scene.running <= bound
    for router in scene.routers.values():
        router.running = 0
    scene.settle()
    staying = [router for router in scene.routers.values() if not router.shares.leaving]
    # And nothing of it is lost.
    assert sum(scene.rooms()) == (bound if staying else 0)
