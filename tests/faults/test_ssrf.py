"""Workers are only where they may be: a corpus of addresses and names, and not one connection."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY, WORKER_STATUS_MISCONFIGURED

from tests.contract.router.gateway import Gateway, running
from tests.fakes.worker import FakeWorker
from tests.faults.ssrf_corpus import ALLOWED, CROOKED, ELSEWHERE, NAMES, NEVER
from tests.harness import attempts, zone
from tests.harness.listener import Listener

TRITON: dict[str, Any] = {
    "runtime": "triton",
    "config": {"transport": "triton", "model_name": "m", "connect_timeout_s": 0.5},
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running(tmp_path, networks=[ALLOWED], drain_s=2.0) as started:
        yield started


@pytest.fixture
async def forbidden() -> AsyncIterator[Listener]:
    async with Listener("127.0.0.2", "::1") as listener:
        yield listener


@pytest.fixture
def tried() -> Iterator[list[Any]]:
    with attempts.noted() as addresses:
        yield addresses


async def refusal(gateway: Gateway, url: str, **changes: Any) -> str:
    """What a registration is told that is not taken; empty if it is taken."""
    try:
        await gateway.register(url, "elsewhere", **changes)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
            return error.details() or ""
        raise
    return ""


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len({*ELSEWHERE, *NEVER, *CROOKED, *NAMES}) >= 130


@pytest.mark.parametrize("place", ["openai", "triton", "grpc_endpoint"])
async def test_what_is_typed_is_refused_and_nothing_is_tried(
    gateway: Gateway, forbidden: Listener, tried: list[Any], place: str
) -> None:
    field = "runtime_config.grpc_endpoint:" if place == "grpc_endpoint" else "runtime_endpoint:"
    for template in (*ELSEWHERE, *NEVER, *CROOKED):
        url = template.replace("{port}", str(forbidden.port))
        if place == "grpc_endpoint":
            target = url.replace("http://", "grpc://").removesuffix("/v1")
            config = {**TRITON["config"], "grpc_endpoint": target}
            said = await refusal(gateway, "http://127.0.0.1:9", runtime="triton", config=config)
        else:
            said = await refusal(gateway, url, **(TRITON if place == "triton" else {}))
        assert said.startswith(field), (url, said)
        assert (forbidden.came, tried) == ([], []), url


@pytest.mark.parametrize(
    "url", ["http://127.0.0.2:8000", "http://2130706434:8000", "http://[::ffff:127.0.0.2]:8000/v1"]
)
async def test_the_refusal_names_the_network_that_is_missing(gateway: Gateway, url: str) -> None:
    said = await refusal(gateway, url)
    assert said == ("runtime_endpoint: it is 127.0.0.2, which is in none of router.allowed_networks (127.0.0.1/32)")


@pytest.mark.parametrize("kind", [{}, TRITON], ids=["openai", "triton"])
async def test_names_that_lead_elsewhere_are_misconfigured_and_nothing_is_tried(
    gateway: Gateway, forbidden: Listener, tried: list[Any], kind: dict[str, Any]
) -> None:
    with zone.serves(NAMES) as asked:
        for name in NAMES:
            detail = await gateway.register(f"http://{name}:{forbidden.port}", "named", **kind)
            assert detail.worker.status == WORKER_STATUS_MISCONFIGURED, name
            assert f"no worker may be at {name}: it is " in gateway.worker("named").health.finding.detail
            assert name in asked
            assert (forbidden.came, tried) == ([], []), name


async def test_of_a_name_with_several_addresses_only_the_allowed_are_tried(gateway: Gateway, tried: list[Any]) -> None:
    async with FakeWorker() as worker:
        with zone.serves({"mixed.test": ["::1", "127.0.0.2", "127.0.0.1"]}):
            detail = await gateway.register(f"http://mixed.test:{worker.port}", "mixed")
            assert detail.worker.status == WORKER_STATUS_HEALTHY
            assert (await gateway.generate()).end is not None
        await gateway.remove("mixed")
    assert {address[0] for address in tried} == {"127.0.0.1"}


async def test_a_name_that_moves_between_two_looks_is_never_followed(
    gateway: Gateway, forbidden: Listener, tried: list[Any]
) -> None:
    """A resolver that answers in turn what is allowed and what is not: each answer is judged, and used or not."""
    async with FakeWorker() as worker:
        turns = itertools.cycle([["127.0.0.1"], ["127.0.0.2"], ["::1"]])
        statuses = []
        with zone.serves({"turning.test": lambda: next(turns)}):
            for _ in range(6):
                detail = await gateway.register(f"http://turning.test:{worker.port}", "turning")
                statuses.append(detail.worker.status)
        await gateway.remove("turning")
    assert {WORKER_STATUS_HEALTHY, WORKER_STATUS_MISCONFIGURED} == set(statuses)
    assert {address[0] for address in tried} == {"127.0.0.1"}
    assert forbidden.came == []


async def test_what_was_stored_under_wider_networks_is_left_out_and_kept(tmp_path: Path, tried: list[Any]) -> None:
    async with running(tmp_path, drain_s=2.0) as wide:
        await wide.register("http://127.0.0.1:9/v1", "kept")
    tried.clear()
    async with running(tmp_path, networks=["10.0.0.0/8"], drain_s=2.0) as narrow:
        assert [worker.worker_id for worker in narrow.router.registry] == []
    assert tried == []
    async with running(tmp_path, drain_s=2.0) as wide:
        assert [worker.worker_id for worker in wide.router.registry] == ["kept"]
