"""Several routers on one registry in PostgreSQL: what one is told the others know soon, and what they do without it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from speedinfer.router.v1 import inference_pb2, registry_pb2
from speedinfer.router.v1.fleet_pb2 import (
    WORKER_STATUS_DRAINING,
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
    WORKER_STATUS_UNHEALTHY,
)
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_OVERLOADED

from services.common.errors import ConfigurationError
from services.router.app import REGISTRY
from services.router.transport.port import Finding
from tests.contract.router.gateway import ADMIN, MODEL, Gateway, item, running
from tests.contract.router.registry_database import RegistryDatabase
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker

pytestmark = [pytest.mark.processes, pytest.mark.real]

# A second, and what a busy machine adds.
SOON_S = 5.0
# Nobody finds anything by looking at its own time.
NEVER = {"probe_interval_s": 600.0, "probe_interval_down_s": 600.0}
Two = tuple[Gateway, Gateway]


@pytest.fixture
async def two(shared_database: RegistryDatabase, tmp_path: Path) -> AsyncIterator[Two]:
    async with (
        running(tmp_path / "a", database=shared_database.url, drain_s=2.0, **NEVER) as one,
        running(tmp_path / "b", database=shared_database.url, drain_s=2.0, **NEVER) as other,
    ):
        yield one, other


async def soon(look: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(SOON_S):
            while not look():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not seen: {what}") from None


def knows(gateway: Gateway, worker_id: str = "w1") -> bool:
    return gateway.router.registry.get(worker_id) is not None


async def health_of(gateway: Gateway, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(gateway.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(answer.status)


async def test_what_one_is_told_the_other_does(two: Two, worker: FakeWorker, second: FakeWorker) -> None:
    one, other = two
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    assert (await other.generate()).counts == (12, 5)
    # Replaced by the other one: the first checks it and uses it.
    await other.register(second.url)
    await soon(lambda: one.worker().registration.endpoint == second.url, "the new endpoint")
    assert one.worker().health.status == WORKER_STATUS_HEALTHY
    async for _ in one.registry.DrainWorker(registry_pb2.DrainWorkerRequest(worker_id="w1"), metadata=ADMIN):
        pass
    await other.until(WORKER_STATUS_DRAINING)
    # Registered anew, as it was: it serves again.
    await other.register(second.url)
    await one.until(WORKER_STATUS_HEALTHY)
    await one.remove()
    await soon(lambda: not knows(other), "the removal")


async def test_a_notification_that_is_lost_costs_a_second(
    two: Two, worker: FakeWorker, shared_database: RegistryDatabase
) -> None:
    one, other = two
    await one.register(worker.url)
    await soon(lambda: knows(other), "the worker")
    # Changed by somebody who tells nobody.
    shared_database.do(
        "UPDATE registry_state SET version = version + 1; "
        "UPDATE registry_worker SET draining = true, version = (SELECT version FROM registry_state)"
    )
    await one.until(WORKER_STATUS_DRAINING)
    await other.until(WORKER_STATUS_DRAINING)
    shared_database.do("UPDATE registry_state SET version = version + 1; DELETE FROM registry_worker")
    await soon(lambda: not knows(one) and not knows(other), "the removal")


async def test_who_starts_later_finds_what_is_there(
    shared_database: RegistryDatabase, tmp_path: Path, worker: FakeWorker
) -> None:
    async with running(tmp_path / "a", database=shared_database.url) as gateway:
        await gateway.register(worker.url)
    async with running(tmp_path / "b", database=shared_database.url) as gateway:
        assert (await gateway.generate()).counts == (12, 5)
        assert not (tmp_path / "b" / "router" / "registry.json").exists()


async def test_a_worker_that_died_is_out_everywhere_by_each_ones_own_look(two: Two, worker: FakeWorker) -> None:
    one, other = two
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    await worker.stop()
    # One router's requests show it; the other has none, and would look in ten minutes.
    assert (await one.generate()).failure is not None
    await soon(lambda: not one.worker().health.is_up or look_at(one), "down at the first")
    await other.until(WORKER_STATUS_UNHEALTHY)
    await worker.start()
    one.worker().attention.set()
    await one.until(WORKER_STATUS_HEALTHY)
    await other.until(WORKER_STATUS_HEALTHY)


async def test_hearsay_alone_ejects_nobody(two: Two, worker: FakeWorker) -> None:
    one, other = two
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    seen = other.worker().last_probe
    # Only the first one's way to it is broken.
    first = one.worker()
    first.health.on_hearsay()
    first.health.on_probe(Finding("connect", "no way"))
    first.looked_at(first.last_probe, status_changed=True)
    assert first.health.status == WORKER_STATUS_UNHEALTHY
    await soon(lambda: other.worker().last_probe != seen, "that the other looks")
    assert other.worker().health.status == WORKER_STATUS_HEALTHY


async def test_that_a_worker_reports_no_usage_is_believed(two: Two, worker: FakeWorker) -> None:
    one, other = two
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    worker.scripts[MODEL] = scripts.chat_stream(MODEL, ["Hi"], None)
    for _ in range(3):
        assert (await one.generate()).failure is not None
    await other.until(WORKER_STATUS_MISCONFIGURED)
    assert "reports no usage" in other.worker().health.finding.detail


async def test_cut_off_a_router_serves_on_says_so_and_catches_up(
    two: Two, worker: FakeWorker, second: FakeWorker, shared_database: RegistryDatabase
) -> None:
    one, other = two
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    serving = health_pb2.HealthCheckResponse.SERVING
    with shared_database.away():
        for gateway in two:
            await soon(lambda gateway=gateway: not gateway.router.following.connected, "that it is cut off")  # type: ignore[misc]
            assert await health_of(gateway, "") == serving
            assert await health_of(gateway, REGISTRY) == health_pb2.HealthCheckResponse.NOT_SERVING
            assert (await gateway.generate()).counts == (12, 5)
            for refused in (
                gateway.register(second.url, "w2"),
                gateway.remove(),
                anext(aiter(gateway.registry.DrainWorker(drain("w1"), metadata=ADMIN))),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await refused
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                assert "the shared registry cannot be reached" in (error.value.details() or "")
            assert gateway.worker().health.status == WORKER_STATUS_HEALTHY
        assert second.requests == []
        # What others do meanwhile is found afterwards.
    await soon(lambda: one.router.following.connected and other.router.following.connected, "that both are back")
    assert await health_of(one, REGISTRY) == serving
    await one.register(second.url, "w2")
    await soon(lambda: knows(other, "w2"), "what was registered afterwards")


async def test_a_listener_that_is_lost_is_made_anew(
    two: Two, worker: FakeWorker, shared_database: RegistryDatabase
) -> None:
    one, other = two
    shared_database.cut("query LIKE 'LISTEN%'")
    await soon(lambda: not one.router.following.connected and not other.router.following.connected, "the loss")
    await soon(lambda: one.router.following.connected and other.router.following.connected, "that both are back")
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)


# Not JSON, JSON of another shape, and what cannot be read as a number, or at all.
NO_WORDS = ("word", "5", '["x", "abc"]', '["x", [["w1", null, "down"]]]', '["x", [["w1", 1e999, "down"]]]', "[" * 7000)


async def test_what_is_no_word_of_a_router_makes_none_deaf(
    two: Two, worker: FakeWorker, shared_database: RegistryDatabase
) -> None:
    one, other = two
    listeners = "FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    (channel,) = {row[0] for row in shared_database.do(f"SELECT split_part(query, '\"', 2) {listeners}")}
    for payload in NO_WORDS:
        shared_database.do(f"SELECT pg_notify('{channel}', '{payload}')")
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    assert shared_database.do(f"SELECT count(*) {listeners}") == [(2,)]


@pytest.mark.parametrize("document", ["[]", "5", "nonsense", "{}"])
async def test_a_row_of_somebody_else_keeps_no_router_from_following(
    two: Two, worker: FakeWorker, shared_database: RegistryDatabase, document: str
) -> None:
    one, other = two
    shared_database.do(
        "UPDATE registry_state SET version = version + 1;"
        "INSERT INTO registry_worker (worker_id, version, document, registered_at_ms, draining)"
        f" SELECT 'foreign', version, '{document}', 0, false FROM registry_state;"
        "UPDATE registry_router SET excess = 'nonsense', draining = '[]'"
    )
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    assert not knows(one, "foreign")


async def test_a_database_that_went_back_is_followed_back(
    two: Two, worker: FakeWorker, shared_database: RegistryDatabase
) -> None:
    one, other = two
    await one.register(worker.url)
    await one.register(worker.url, "w2")
    await soon(lambda: knows(other, "w2"), "the workers")
    shared_database.do(
        "UPDATE registry_state SET version = version - 1; DELETE FROM registry_worker WHERE worker_id = 'w2'"
    )
    await soon(lambda: not knows(one, "w2") and not knows(other, "w2"), "that it went back")
    assert knows(one)
    assert knows(other)


async def test_drained_is_said_when_nothing_runs_at_any_router(two: Two, worker: FakeWorker) -> None:
    one, other = two
    go_on = asyncio.Event()
    hello = scripts.delta(MODEL, content="Hello")
    rest = (scripts.delta(MODEL, finish_reason="stop"), scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1)))
    worker.scripts[MODEL] = scripts.stream(hello, scripts.WaitFor(go_on), *rest)
    await one.register(worker.url)
    await other.until(WORKER_STATUS_HEALTHY)
    stream = aiter(other.inference.Generate(inference_pb2.GenerateRequest(item=item())))
    await anext(stream)
    told = aiter(one.registry.DrainWorker(drain("w1", wait_ms=20_000), metadata=ADMIN))
    first = await anext(told)
    assert (first.in_flight, first.drained) == (1, False)
    go_on.set()
    async for _ in stream:
        pass
    last = [answer async for answer in told][-1]
    assert (last.in_flight, last.drained) == (0, True)


async def test_places_are_shared_while_routers_come_and_go(
    shared_database: RegistryDatabase, tmp_path: Path, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = scripts.stream(scripts.delta(MODEL, content="Hello"), scripts.Hang())
    calls = []

    async def fill(gateway: Gateway, number: int) -> None:
        for _ in range(number):
            call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=item()))
            responses = aiter(call)
            assert (await anext(responses)).frame.WhichOneof("frame") == "accepted"
            calls.append(call)
        # One more finds no room, whoever else has some.
        refused = await gateway.generate()
        assert refused.failure is not None
        assert refused.failure.reason == FAILURE_REASON_OVERLOADED

    async with running(tmp_path / "a", database=shared_database.url, drain_s=0.1) as one:
        await one.register(worker.url, config={"max_concurrency": 5})
        await soon(lambda: one.worker().max_concurrency == 5, "all of it")
        async with running(tmp_path / "b", database=shared_database.url, drain_s=0.1) as other:
            await soon(lambda: one.worker().max_concurrency < 5, "that the first one shares")
            await other.until(WORKER_STATUS_HEALTHY)
            await soon(lambda: one.worker().max_concurrency + other.worker().max_concurrency == 5, "all of it, shared")
            assert {one.worker().max_concurrency, other.worker().max_concurrency} == {2, 3}
            await fill(one, one.worker().max_concurrency)
            await fill(other, other.worker().max_concurrency)
            # A third has no share of what is taken.
            async with running(tmp_path / "c", database=shared_database.url, drain_s=0.1) as third:
                await third.until(WORKER_STATUS_HEALTHY)
                await soon(lambda: one.router.following.routers == 3, "the third")
                await third.router.following.settled(SOON_S)
                assert third.worker().max_concurrency == 0
                for call in calls:
                    call.cancel()
                await soon(
                    lambda: sorted(each.worker().max_concurrency for each in (one, other, third)) == [1, 2, 2], "shares"
                )
        await soon(lambda: one.worker().max_concurrency == 5, "all of it again")


async def test_a_database_that_is_no_registry_is_refused(shared_database: RegistryDatabase, tmp_path: Path) -> None:
    async with running(tmp_path / "a", database=shared_database.url):
        pass
    for change, undo, said in (
        ("INSERT INTO migration VALUES (99, '0099_later', 'x', 0)", "DELETE FROM migration WHERE number = 99", "newer"),
        ("CREATE TABLE mine (a int)", "DROP TABLE mine", "mine"),
    ):
        shared_database.do(change)
        try:
            with pytest.raises(ConfigurationError, match=said):
                async with running(tmp_path / "a", database=shared_database.url):
                    raise AssertionError("it started")
        finally:
            shared_database.do(undo)


@pytest.mark.parametrize(
    "url", ["mysql://u:hush@h/d", "hush", "postgresql://u:hu/sh@h:x/d", "postgresql://u:hush@127.0.0.1:9/d"]
)
async def test_a_url_that_leads_nowhere_is_refused_and_not_repeated(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"router\.database") as refused:
        async with running(tmp_path, database=url):
            raise AssertionError("it started")
    assert "hu" not in str(refused.value).replace("Hu", "")


def look_at(gateway: Gateway) -> bool:
    gateway.worker().attention.set()
    return False


def drain(worker_id: str, wait_ms: int = 0) -> registry_pb2.DrainWorkerRequest:
    return registry_pb2.DrainWorkerRequest(worker_id=worker_id, wait_ms=wait_ms)
