"""The compose files, run as processes without Docker: a request through the public port is served and charged, what dies comes
back, and Prometheus finds what it is told to read.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import httpx
import pytest

from tests.harness import compose, hosts
from tests.harness.until import until
from tests.harness.upstream import MODEL
from tests.sidecars.composed import Composed

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hosts.possible(), reason="needs network namespaces, which need root and Linux"),
]
SERVICES = ("edge", "router", "billing")
CREDIT = "10"
# 12 prompt tokens at 0.20 and 5 completion tokens at 0.60 USD for a million.
COST = Decimal("0.0000054")


@dataclass(frozen=True)
class Customer:
    """Who asks, and pays."""

    account: str
    key: str


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """One of each."""
    with Composed(tmp_path_factory.mktemp("compose"), compose.ONE_OF_EACH) as composed:
        yield composed


@pytest.fixture(scope="module")
def customer(one: Composed) -> Customer:
    return prepare(one)


def prepare(composed: Composed) -> Customer:
    """A worker, a price, an account with a key: as the guide says, each where a service of its own is at hand."""
    registration = json.dumps(composed.worker.registration())
    assert composed.command("router", "workers", "register", "-", stdin=registration)["status"] == "healthy"
    composed.command("billing", "prices", "set", MODEL, "--prompt", "0.20", "--completion", "0.60")
    account = composed.command("billing", "accounts", "create", "compose", "--credit", CREDIT)["account_id"]
    return Customer(account, composed.command("billing", "keys", "create", "--account", account)["key"])


def charged(composed: Composed, customer: Customer) -> Decimal:
    shown = composed.command("billing", "accounts", "show", customer.account)
    return Decimal(CREDIT) - Decimal(shown["balance"])


def served(composed: Composed, customer: Customer, edge: str = "edge") -> bool:
    try:
        return composed.ask(customer.key, edge).status_code == 200
    except httpx.TransportError:
        return False


def test_a_request_is_served_and_charged(one: Composed, customer: Customer) -> None:
    answer = one.ask(customer.key)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world!"
    assert one.worker.seen.completed == 1
    assert charged(one, customer) == COST


def test_prometheus_finds_what_it_is_told_to_read(one: Composed) -> None:
    prometheus_reads(one, 6)


def prometheus_reads(composed: Composed, count: int) -> None:
    targets = composed.targets()
    assert len(targets) == count
    for address, path in targets:
        service = address.partition("-")[0]
        text = composed.scrape(address, path)
        assert (f"speedinfer_{service}_" if path == "/metrics" else "envoy_server_live{} 1") in text


@pytest.mark.parametrize("what", ["edge-sidecar", "router-sidecar", "billing-sidecar", *SERVICES])
def test_what_dies_comes_back_and_who_shares_its_network_has_not_noticed(
    one: Composed, customer: Customer, what: str
) -> None:
    before = {name: each.starts for name, each in one.containers.items()}
    one.containers[what].kill()
    assert one.health(what) != 0
    until(lambda: one.tend() and served(one, customer), f"served again, with another {what}")
    assert {name for name, each in one.containers.items() if each.starts != before[name]} == {what}


def test_whatever_died_each_answer_was_charged_once(one: Composed, customer: Customer) -> None:
    # A request that came when something was dead may have reached the worker, and is charged if the worker has finished it.
    until(lambda: charged(one, customer) == one.worker.seen.completed * COST, "what was served is what was charged")


def test_what_is_stopped_ends_in_order_and_by_itself(one: Composed) -> None:
    codes = one.stop()
    assert {codes[name] for name in (*SERVICES, "postgres")} == {0}
    order = list(codes)
    for name in SERVICES:
        assert order.index(name) < order.index(f"{name}-sidecar") < order.index(f"{name}-host")
    assert order.index("edge") < min(order.index("router"), order.index("billing"))
    assert max(order.index("router"), order.index("billing")) < order.index("postgres")
