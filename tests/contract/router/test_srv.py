"""Workers found by SRV records: each address and port of the targets is one, and name servers that fail change nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY

from services.common.errors import ConfigurationError
from services.router.discovery import questions, sources, srv
from services.router.discovery.port import Found, Unseen
from services.router.discovery.questions import Questions
from services.router.discovery.srv import SrvSource
from tests.contract.router.gateway import MODEL, Gateway, running
from tests.fakes.name_server import NameServer
from tests.fakes.worker import FakeWorker

NAME = "_http._tcp.workers.test"
OFTEN = {"discover_interval_s": 0.02}


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with NameServer() as fake:
        fake.records = {
            (NAME, "SRV"): ["10 5 8001 one.test.", "20 0 8002 one.test.", "0 0 8001 two.test."],
            ("one.test", "A"): ["127.0.0.1"],
            ("two.test", "A"): ["127.0.0.2"],
        }
        yield fake


def document(server: NameServer, **changes: Any) -> dict[str, Any]:
    return {
        "worker_id": "found", "runtime": "openai-compatible", "runtime_endpoint": "http://workers.test/v1",
        "supported_models": [MODEL], "runtime_config": {"transport": "openai", "check": "metadata"},
        "srv": {"name": NAME, "nameservers": [server.address]}, **changes,
    }  # fmt: skip


@asynccontextmanager
async def looking(tmp_path: Path, server: NameServer) -> AsyncIterator[Gateway]:
    async with running(tmp_path, discover=[document(server)], **OFTEN) as gateway:
        yield gateway


def ids(gateway: Gateway) -> list[str]:
    return [worker.worker_id for worker in gateway.router.registry]


ALL = ["found-127.0.0.1-8001", "found-127.0.0.1-8002", "found-127.0.0.2-8001"]


async def test_each_target_is_a_worker_that_comes_and_goes_with_its_record(
    tmp_path: Path, server: NameServer, worker: FakeWorker
) -> None:
    async with looking(tmp_path, server) as gateway:
        # Whatever their priority.
        assert ids(gateway) == ALL
        server.records[NAME, "SRV"] = [f"0 0 {worker.port} one.test.", "0 0 8001 TWO.test."]
        await server.asked_again()
        assert ids(gateway) == [f"found-127.0.0.1-{worker.port}", "found-127.0.0.2-8001"]
        await gateway.until(WORKER_STATUS_HEALTHY, f"found-127.0.0.1-{worker.port}")
        assert (await gateway.generate()).counts == (12, 5)
        with pytest.raises(grpc.aio.AioRpcError, match=rf"found by the SRV name {NAME}"):
            await gateway.remove("found-127.0.0.2-8001")


async def test_a_host_with_ipv4_and_ipv6_is_one_worker(tmp_path: Path, server: NameServer) -> None:
    server.records[NAME, "SRV"] = ["0 0 1 both.test.", "0 0 2 six.test.", "0 0 3 many.test."]
    server.records["both.test", "A"], server.records["both.test", "AAAA"] = ["127.0.0.1"], ["::1"]
    server.records["six.test", "AAAA"] = ["::1"]
    server.records["many.test", "A"] = ["127.0.0.5", "127.0.0.6"]
    async with looking(tmp_path, server) as gateway:
        assert ids(gateway) == ["found-127.0.0.1-1", "found-127.0.0.5-3", "found-127.0.0.6-3", "found-::1-2"]


async def test_a_truncated_answer_is_asked_for_over_tcp(tmp_path: Path, server: NameServer) -> None:
    server.records[NAME, "SRV"] = [f"0 0 {port} one.test." for port in range(1, 61)]
    async with looking(tmp_path, server) as gateway:
        assert len(ids(gateway)) == 60
        assert ("tcp", NAME, "SRV") in server.asked


@pytest.mark.parametrize("fault", ["SERVFAIL", "REFUSED", "silence", "nonsense"])
async def test_name_servers_that_fail_change_nothing(
    tmp_path: Path, server: NameServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TRY_S", 0.1)
    monkeypatch.setattr(questions, "WITHIN_S", 0.2)
    async with looking(tmp_path, server) as gateway:
        before = [gateway.worker(each) for each in ALL]
        server.faults[NAME] = fault
        await server.asked_again(10)
        assert [gateway.worker(each) for each in ids(gateway)] == before
        # The targets' turn: the record of one changes, and nobody says where the other is.
        server.faults = {"one.test": fault}
        server.records["two.test", "A"] = ["127.0.0.3"]
        await server.asked_again(10)
        assert ids(gateway) == [*ALL[:2], "found-127.0.0.3-8001"]


async def test_a_name_that_is_no_more_is_believed_the_third_time(server: NameServer) -> None:
    source = SrvSource(NAME, Questions([("127.0.0.1", server.port)]), 0.001)
    everything = frozenset({Found("127.0.0.1", 8001), Found("127.0.0.1", 8002), Found("127.0.0.2", 8001)})
    sightings = source.sightings()
    assert await anext(sightings) == everything
    records, server.records = server.records, {}
    for _ in range(2):
        assert isinstance(await anext(sightings), Unseen)
    server.records = records
    assert await anext(sightings) == everything
    # A name without such records, and the record that says that there is no such service, are the same.
    server.records = {(NAME, "A"): ["127.0.0.1"]}
    assert isinstance(await anext(sightings), Unseen)
    server.records = {(NAME, "SRV"): ["0 0 0 ."]}
    assert isinstance(await anext(sightings), Unseen)
    assert await anext(sightings) == frozenset()
    server.records = records
    assert await anext(sightings) == everything
    await sightings.aclose()


async def test_a_target_that_is_no_more_is_believed_the_third_time(server: NameServer) -> None:
    source = SrvSource(NAME, Questions([("127.0.0.1", server.port)]), 0.001)
    sightings = source.sightings()
    everything = await anext(sightings)
    del server.records["two.test", "A"]
    # However it is written: some servers change the case.
    server.records[NAME, "SRV"][2] = "0 0 8001 TWO.test."
    assert [await anext(sightings) for _ in range(2)] == [everything] * 2
    assert await anext(sightings) == frozenset({Found("127.0.0.1", 8001), Found("127.0.0.1", 8002)})
    await sightings.aclose()


@pytest.mark.parametrize(
    ("interval_s", "ttl_s", "waited_s"), [(5.0, 300, 5.0), (5.0, 2, 2.0), (5.0, 0, 1.0), (0.5, 0, 0.5)]
)
async def test_a_ttl_shortens_the_interval_and_never_lengthens_it(
    server: NameServer, monkeypatch: pytest.MonkeyPatch, interval_s: float, ttl_s: int, waited_s: float
) -> None:
    server.ttl_s = ttl_s
    waits: list[float] = []

    class Waited(Exception):
        """Instead of waiting."""

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        raise Waited

    sightings = SrvSource(NAME, Questions([("127.0.0.1", server.port)]), interval_s).sightings()
    await anext(sightings)
    monkeypatch.setattr(srv.asyncio, "sleep", wait)
    with pytest.raises(Waited):
        await anext(sightings)
    assert waits == [waited_s]


async def test_a_look_is_bounded_however_many_targets_are_silent(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "TRY_S", 0.1)
    monkeypatch.setattr(questions, "WITHIN_S", 0.3)
    monkeypatch.setattr(srv, "LOOK_WITHIN_S", 0.05)
    monkeypatch.setattr(srv, "MAX_QUESTIONS", 4)
    server.records = {(NAME, "SRV"): [f"0 0 1 h{n}.test." for n in range(20)]}
    server.faults = {f"h{n}.test": "silence" for n in range(20)}
    sightings = SrvSource(NAME, Questions([("127.0.0.1", server.port)]), 0.001).sightings()
    assert await anext(sightings) == frozenset()
    # Four at once; when they have had their time, that of the look is over.
    assert len({name for _, name, kind in server.asked if kind == "A"}) <= 4
    await sightings.aclose()


async def test_more_targets_than_there_may_be_change_nothing(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MAX_TARGETS", 2)
    sightings = SrvSource(NAME, Questions([("127.0.0.1", server.port)]), 0.001).sightings()
    assert await anext(sightings) == Unseen("it has more than 2 targets")
    await sightings.aclose()


async def test_a_router_ends_while_questions_are_open(tmp_path: Path, server: NameServer) -> None:
    async with looking(tmp_path, server) as gateway:
        server.faults = dict.fromkeys([NAME, "one.test", "two.test"], "silence")
        await server.asked_again(1)
        async with asyncio.timeout(4):
            await gateway.router._finder.close()


async def test_an_address_that_no_worker_may_have_is_not_taken(tmp_path: Path, server: NameServer) -> None:
    server.records["two.test", "A"] = ["169.254.169.254"]
    async with looking(tmp_path, server) as gateway:
        assert ids(gateway) == ALL[:2]


async def test_a_name_that_no_message_can_hold_is_a_failure_and_no_bug() -> None:
    # Nobody is asked.
    with pytest.raises(questions.QuestionFailed, match="EmptyLabel"):
        await Questions().services("a..b")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"srv": "two words"}, "srv.name: it has characters"),
        ({"srv": 7}, "srv"),
        ({"srv": {"name": NAME, "colour": "red"}}, "srv.colour is not known"),
        ({"srv": {"name": NAME, "nameservers": []}}, "srv.nameservers: it must have at least 1"),
        ({"srv": {"name": NAME, "nameservers": ["dns.test"]}}, "srv.nameservers.0: it must be an address"),
        ({"srv": {"name": NAME, "nameservers": ["10.0.0.2:0"]}}, "srv.nameservers.0: it must be an address"),
        ({"kubernetes": {"service": "vllm", "port": 1}}, "give one of them"),
        ({"runtime_endpoint": "http://workers.test:8000/v1"}, "runtime_endpoint: it must have no port"),
    ],
)
async def test_what_cannot_be_looked_for_stops_the_start(
    tmp_path: Path, server: NameServer, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"discover\[0\]: .*{said}"):
        async with running(tmp_path, discover=[document(server, **changes)]):
            raise AssertionError("it started")


async def test_name_servers_are_named_by_address_and_port(server: NameServer) -> None:
    written = ["10.0.0.2", "10.0.0.2:8600", "[fd00::2]:8600", "[fd00::2]", "fd00::2"]
    ((_, source),) = sources.read_all([document(server, srv={"name": NAME, "nameservers": written})], 1.0)
    assert isinstance(source, SrvSource)
    assert source._questions._servers == (
        ("10.0.0.2", 53), ("10.0.0.2", 8600), ("fd00::2", 8600), ("fd00::2", 53), ("fd00::2", 53),
    )  # fmt: skip
    ((_, short),) = sources.read_all([document(server, srv=NAME)], 1.0)
    assert short.title == f"the SRV name {NAME}"
