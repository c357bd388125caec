"""The compose files, run as processes without Docker: a request through the public port is served and charged, what dies comes
back, and Prometheus finds what it is told to read.
"""

from collections.abc import Iterator

import pytest

from tests.harness import compose, hosts
from tests.harness.until import until
from tests.sidecars.composed import COST, Composed, Customer

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not hosts.possible(), reason="needs network namespaces, which need root and Linux"),
]
SERVICES = ("edge", "router", "billing")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """One of each."""
    with Composed(tmp_path_factory.mktemp("compose"), compose.ONE_OF_EACH) as composed:
        yield composed


@pytest.fixture(scope="module")
def customer(one: Composed) -> Customer:
    return Customer(one)


def test_a_request_is_served_and_charged(one: Composed, customer: Customer) -> None:
    answer = customer.ask()
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world!"
    assert one.worker.seen.completed == 1
    assert customer.charged() == COST


def test_prometheus_finds_what_it_is_told_to_read(one: Composed) -> None:
    assert one.reads() == {"edge": 2, "router": 2, "billing": 2}


@pytest.mark.parametrize("what", ["edge-sidecar", "router-sidecar", "billing-sidecar", *SERVICES])
def test_what_dies_comes_back_and_who_shares_its_network_has_not_noticed(
    one: Composed, customer: Customer, what: str
) -> None:
    before = {name: each.starts for name, each in one.containers.items()}
    one.containers[what].kill()
    assert one.health(what) != 0
    until(lambda: one.tend() and customer.is_served(), f"served again, with another {what}")
    assert {name for name, each in one.containers.items() if each.starts != before[name]} == {what}


def test_whatever_died_each_answer_was_charged_once(one: Composed, customer: Customer) -> None:
    until(lambda: customer.charged() == one.worker.seen.completed * COST, "what was served is what was charged")


def test_what_is_stopped_ends_in_order_and_by_itself(one: Composed) -> None:
    codes = one.stop()
    assert {codes[name] for name in (*SERVICES, "postgres")} == {0}
    order = list(codes)
    for name in SERVICES:
        assert order.index(name) < order.index(f"{name}-sidecar") < order.index(f"{name}-host")
    assert order.index("edge") < min(order.index("router"), order.index("billing"))
    assert max(order.index("router"), order.index("billing")) < order.index("postgres")
