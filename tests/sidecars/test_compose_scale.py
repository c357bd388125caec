"""The compose files with two of each, run as processes without Docker: either edge serves, through any router and billing."""

from collections.abc import Iterator

import pytest

from tests.harness import compose, hosts
from tests.harness.until import until
from tests.sidecars.composed import COST, Composed, Customer

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not hosts.possible(), reason="needs network namespaces, which need root and Linux"),
]
EDGES = ("edge", "edge-2")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """Two of each."""
    with Composed(tmp_path_factory.mktemp("compose-scale"), compose.TWO_OF_EACH) as composed:
        yield composed


@pytest.fixture(scope="module")
def customer(two: Composed) -> Customer:
    return Customer(two)


def test_either_edge_serves_and_either_billing_has_the_charges(two: Composed, customer: Customer) -> None:
    # The second router knows the worker from the registry that they share; each edge from a router.
    for edge in EDGES:
        until(lambda edge=edge: customer.is_served(edge), f"{edge} serves")
    assert [each["worker_id"] for each in two.command("router-2", "workers", "list")] == ["scripted-1"]
    for billing in ("billing", "billing-2"):
        assert customer.charged(billing) == two.worker.seen.completed * COST


def test_prometheus_finds_what_it_is_told_to_read(two: Composed) -> None:
    assert two.reads() == {"edge": 4, "router": 4, "billing": 4}


@pytest.mark.parametrize("gone", ["router", "router-2", "billing", "billing-2"])
def test_each_edge_does_without_one_router_or_billing(two: Composed, customer: Customer, gone: str) -> None:
    two.containers[gone].kill()
    for edge in EDGES:
        until(lambda edge=edge: customer.is_served(edge), f"{edge} serves without {gone}")
    until(lambda: two.tend() and two.health(gone) == 0, f"another {gone}")


def test_one_edge_serves_without_the_other(two: Composed, customer: Customer) -> None:
    two.containers["edge"].kill()
    assert customer.is_served("edge-2")
    until(lambda: two.tend() and customer.is_served("edge"), "another edge")


def test_what_is_stopped_ends_in_order_and_by_itself(two: Composed, customer: Customer) -> None:
    until(lambda: customer.charged() == two.worker.seen.completed * COST, "what was served is what was charged")
    codes = two.stop()
    ours = {name for name in codes if name.rstrip("-2") in ("edge", "router", "billing")}
    assert len(ours) == 6
    assert {codes[name] for name in ours} == {0}
    order = list(codes)
    assert max(map(order.index, EDGES)) < min(map(order.index, ours - set(EDGES)))
