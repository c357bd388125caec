"""Two of everything under load: whatever one process, Envoy or cable does, money is right and only what was on it suffers.

What is promised: no charge lost or doubled; a stream breaks only if it ran on what was killed; half a second after a fault that
can be seen (a process that is gone), and a few after one that cannot (a cable), new calls do not fail.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.common.money import parse_usd
from tests.harness import deployed, hosts
from tests.harness.charges import charge_nanos
from tests.harness.until import until
from tests.harness.upstream import MODEL, Script
from tests.sidecars.crowd import Call, Crowd
from tests.sidecars.fleet import PRICE, PUBLIC, SERVICES, Fleet

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not hosts.possible(), reason="network namespaces need root and Linux"),
]
CREDIT = "1000"
CLIENTS = 200
# Six seconds each.
TALE = Script(pieces=tuple(f"word{number} " for number in range(15)), prompt_tokens=12, completion_tokens=15, gap_s=0.4)
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "tell me"}], "max_tokens": 64}
BLINK_S = 1.0
PARTITION_S = 10.0
# Until a cable that was cut is found, and what was sent over it has gone another way.
FOUND_S = 2.0
SUITE = ("test_answers.py", "test_bad_input.py", "test_command.py")
SUITE_WITHIN_S = 300
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two of everything."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.worker.plays(TALE)
        yield fleet


@dataclass
class Customer:
    """Who pays for a test's load."""

    account_id: str
    key: str


@pytest.fixture
def customer(fleet: Fleet) -> Customer:
    """An account with a key."""
    account = fleet.command("accounts", "create", "fleet", "--credit", CREDIT)["account_id"]
    return Customer(account, fleet.command("keys", "create", "--account", account)["key"])


Fault = Callable[[Crowd], Awaitable[None]]


def under_load(fleet: Fleet, customer: Customer, fault: Fault) -> Crowd:
    """Play a fault under 200 streams; the crowd, with every call that there was."""

    async def play() -> Crowd:
        # A connection for each call: that of a client which has one kept for it by a pool is now and then closed by the pool
        # itself as it is used again, which the doors see as a client that left.
        limits = httpx.Limits(max_connections=2 * CLIENTS, max_keepalive_connections=0)
        async with (
            httpx.AsyncClient(verify=fleet.trust(), timeout=60, limits=limits) as http,
            Crowd(http, fleet.urls(), customer.key, BODY, CLIENTS) as crowd,
        ):
            await crowd.more(CLIENTS)
            await fault(crowd)
            await crowd.more(CLIENTS // 2)
        return crowd

    return fleet.from_outside(play)


def adds_up(fleet: Fleet, customer: Customer, calls: list[Call]) -> None:
    """Each call that was seen whole has one charge, of its own amount; none has two; the ledger agrees with itself."""
    account = until(lambda: _unheld(fleet, customer), "nothing is held", 120)
    entries = fleet.command("ledger", "list", "--account", customer.account_id, whose=deployed.FINANCE)
    charges = [entry for entry in entries if entry["kind"] in ("charge", "late_charge")]
    times = Counter(entry["request_id"] for entry in charges)
    assert [request for request, count in times.items() if count > 1] == []
    amounts = {entry["request_id"]: -parse_usd(entry["amount"]) for entry in charges}
    whole = [call for call in calls if not call.failure]
    assert [call for call in whole if call.request_id not in amounts] == []
    assert [call for call in whole if amounts[call.request_id] != charge_nanos(call.usage or {}, *PRICE)] == []
    assert parse_usd(account["balance"]) == parse_usd(CREDIT) - sum(amounts.values())
    assert fleet.command("ledger", "verify", whose=deployed.FINANCE)["ok"]


def _unheld(fleet: Fleet, customer: Customer) -> dict[str, Any] | None:
    account: dict[str, Any] = fleet.command("accounts", "show", customer.account_id)
    return account if account["held"] == "0.000000000" else None


def failed(calls: list[Call]) -> list[Call]:
    """Those that were not seen whole."""
    return [call for call in calls if call.failure]


@pytest.mark.parametrize("what", ["service", "envoy"])
@pytest.mark.parametrize("name", SERVICES)
def test_a_process_that_is_killed_takes_only_its_own(fleet: Fleet, customer: Customer, name: str, what: str) -> None:
    struck: list[float] = []
    instance = fleet[name]

    async def kill(crowd: Crowd) -> None:
        struck.append(time.monotonic())
        (instance.kill if what == "service" else instance.envoy.kill)()
        # On what is left.
        await crowd.more(CLIENTS)
        await asyncio.to_thread(instance.start if what == "service" else instance.envoy.start)

    crowd = under_load(fleet, customer, kill)
    fleet.until_ready(name)
    calls, broken = crowd.calls, failed(crowd.calls)
    door = f"https://{instance.host.address}:{PUBLIC}"
    mine = [call for call in calls if call.ran_at(struck[0])]
    if instance.service == "billing":
        assert [call for call in broken if call in mine] == [], "who streams does without billing until the end"
    elif instance.service == "edge":
        assert [call for call in broken if call.edge != door] == []
    else:
        assert len([call for call in broken if call in mine]) < len(mine), "the other router's streams go on"
    assert [call for call in broken if call.began_s > struck[0] + BLINK_S] == []
    # Nor was anybody sent away but from the door that was struck.
    sent_away = {call.edge for call in crowd.turned_away if call.began_s > struck[0] + BLINK_S}
    assert sent_away <= ({door} if instance.service == "edge" else set())
    adds_up(fleet, customer, calls)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("edge-1", "router-1"),
        ("edge-1", "billing-1"),
        ("billing-1", "store"),
        ("router-1", "store"),
        ("router-1", "worker"),
    ],
)
def test_a_cable_that_is_cut_for_ten_seconds_costs_nobody_money(
    fleet: Fleet, customer: Customer, one: str, other: str
) -> None:
    cut: list[float] = []
    door = f"https://{fleet.hosts['edge-1'].address}:{PUBLIC}"

    async def part(crowd: Crowd) -> None:
        cut.append(time.monotonic())
        fleet.hosts[one].part_from(fleet.hosts[other])
        try:
            await asyncio.sleep(PARTITION_S)
        finally:
            fleet.hosts[one].meet(fleet.hosts[other])
        await crowd.more(CLIENTS // 2, 90)

    calls = under_load(fleet, customer, part).calls
    broken, under_way = failed(calls), [call for call in calls if call.ran_at(cut[0])]
    # Who comes later finds another way.
    assert [call for call in broken if call.began_s > cut[0] + FOUND_S] == []
    # Of those under way, only what ran over that cable may be cut.
    match one, other:
        case "edge-1", "router-1":
            assert [call for call in broken if call.edge != door] == []
            assert len([call for call in under_way if call.failure]) < len(under_way) // 2, "through the other router"
        case "router-1", "worker":
            assert len([call for call in under_way if call.failure]) < len(under_way), "through the other router"
        case _:
            assert [call for call in under_way if call.failure] == [], "no stream runs over that cable"
    adds_up(fleet, customer, calls)


def test_a_rolling_restart_of_everything_cuts_no_stream(fleet: Fleet, customer: Customer) -> None:
    async def roll(crowd: Crowd) -> None:
        for name in SERVICES:
            instance = fleet[name]
            assert await asyncio.to_thread(instance.stop) == 0, instance.tail()
            await asyncio.to_thread(instance.envoy.stop)
            await asyncio.to_thread(instance.envoy.start)
            await asyncio.to_thread(instance.start)
            await asyncio.to_thread(fleet.until_ready, name)
            await crowd.more(20)

    calls = under_load(fleet, customer, roll).calls
    assert failed(calls) == []
    adds_up(fleet, customer, calls)


def test_a_rotation_of_all_certificates_fails_nobody(fleet: Fleet, customer: Customer) -> None:
    before = fleet.serials()

    async def rotate(crowd: Crowd) -> None:
        await asyncio.to_thread(fleet.rotate)
        await asyncio.to_thread(until, lambda: not fleet.serials() & before, "all show their new ones", 30)
        await crowd.more(CLIENTS)

    crowd = under_load(fleet, customer, rotate)
    assert failed(crowd.calls) == []
    assert crowd.turned_away == []
    adds_up(fleet, customer, crowd.calls)


@pytest.mark.parametrize("door", [0, 1])
def test_the_black_box_suite_through_a_public_door(fleet: Fleet, tmp_path: Path, door: int) -> None:
    description = tmp_path / "deployment.json"
    here = fleet.hosts["operator"]
    deployed.describe(description, fleet.urls()[door], fleet.authority, here.address, fleet.callers)
    suite = [str(ROOT / "tests" / "blackbox" / name) for name in SUITE]
    try:
        with here.entered():
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-m", "not inside", "-p", "no:cacheprovider", *suite],
                env={**os.environ, deployed.VARIABLE: str(description)},
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=SUITE_WITHIN_S,
                check=False,
            )
    finally:
        # The suite's own worker had its name.
        fleet.register()
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
