"""Places on workers with a bound: kept, waited for in turn, used by their request, and given back whatever happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from speedinfer.common.v1 import context_pb2
from speedinfer.router.v1 import inference_pb2
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHOICES, WORKER_STATUS_UNHEALTHY
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_DRAINING,
    FAILURE_REASON_MODEL_NOT_FOUND,
    FAILURE_REASON_NO_WORKER,
    FAILURE_REASON_OVERLOADED,
    FAILURE_REASON_UNSUPPORTED,
)

from services.common import ids
from tests.contract.router.gateway import MODEL, Gateway, item, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker


class Hold:
    """One HoldPlace call."""

    def __init__(self, gateway: Gateway, party: str = "a", **changes: object) -> None:
        self.request_id = ids.uuid7()
        request = inference_pb2.HoldPlaceRequest(
            context=context_pb2.RequestContext(request_id=self.request_id), model=MODEL, party=party
        )
        for name, value in changes.items():
            field = getattr(request, name)
            if name == "requirements":
                field.extend(value)
            else:
                setattr(request, name, value)
        self.call = gateway.inference.HoldPlace(request)
        self.answer: asyncio.Task[inference_pb2.HoldPlaceResponse] = asyncio.ensure_future(self.call.read())

    async def worker_id(self) -> str:
        answer = await self.answer
        assert answer.WhichOneof("outcome") == "place", answer
        return answer.place.worker_id

    async def refusal(self) -> int:
        answer = await self.answer
        assert answer.WhichOneof("outcome") == "failure", answer
        return answer.failure.reason

    async def end(self) -> None:
        self.call.cancel()
        await asyncio.gather(self.answer, return_exceptions=True)


@asynccontextmanager
async def one_worker(folder: Path, places: int = 1, **limits: object) -> AsyncIterator[Gateway]:
    async with FakeWorker() as worker, running(folder, **limits) as gateway:
        await gateway.register(worker.url, config={"max_concurrency": places})
        yield gateway


async def until_waiting(gateway: Gateway, number: int) -> None:
    async with asyncio.timeout(5):
        while gateway.router.dispatcher.places.waiting != number:
            await asyncio.sleep(0.005)


async def test_a_place_is_the_requests_own_slot(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        hold = Hold(gateway)
        assert await hold.worker_id() == "w1"
        assert gateway.worker().in_flight == 1
        request = item()
        request.context.request_id = hold.request_id
        call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=request))
        frames = [response.frame async for response in call]
        assert frames[-1].WhichOneof("frame") == "end"
        # The call that kept it ends by itself, and the slot is given back once.
        assert await hold.call.read() is grpc.aio.EOF
        await gateway.until_free()
        assert gateway.worker().in_flight == 0


async def test_a_place_that_nobody_uses_goes_to_the_next_with_the_call(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        first = Hold(gateway)
        await first.worker_id()
        second = Hold(gateway)
        await until_waiting(gateway, 1)
        await first.end()
        assert await second.worker_id() == "w1"
        await second.end()
        await gateway.until_free()


async def test_a_place_that_another_router_gave_is_believed(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        taken = Hold(gateway)
        await taken.worker_id()
        without = await gateway.generate()
        assert without.failure.reason == FAILURE_REASON_OVERLOADED
        # As after a succession: the place is the old router's, and the hold has been made.
        assert (await gateway.generate(place_worker_id="w1")).end is not None
        for unknown in (await gateway.generate(place_worker_id="w2"), await gateway.generate(place_worker_id="")):
            assert unknown.failure.reason == FAILURE_REASON_OVERLOADED
        await taken.end()
        await gateway.until_free()


async def test_turns_go_round_the_parties(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        running_now = Hold(gateway)
        await running_now.worker_id()
        crowd = []
        for number in range(3):
            crowd.append(Hold(gateway, "crowd"))
            await until_waiting(gateway, number + 1)
        late = Hold(gateway, "late")
        await until_waiting(gateway, 4)
        order = []
        waiting = {"crowd0": crowd[0], "crowd1": crowd[1], "crowd2": crowd[2], "late": late}
        while waiting:
            await running_now.end()
            done, _ = await asyncio.wait(
                [each.answer for each in waiting.values()], return_when=asyncio.FIRST_COMPLETED, timeout=5
            )
            (name,) = [name for name, each in waiting.items() if each.answer in done]
            order.append(name)
            running_now = waiting.pop(name)
        await running_now.end()
        assert order == ["crowd0", "late", "crowd1", "crowd2"]
        await gateway.until_free()


async def test_whoever_leaves_the_queue_is_not_served(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        first, leaver, last = Hold(gateway), Hold(gateway), Hold(gateway)
        await first.worker_id()
        await until_waiting(gateway, 2)
        await leaver.end()
        await until_waiting(gateway, 1)
        await first.end()
        assert await last.worker_id() == "w1"
        await last.end()
        await gateway.until_free()


async def test_the_wait_has_an_end(tmp_path: Path) -> None:
    async with one_worker(tmp_path, queue_wait_s=0.05) as gateway:
        first = Hold(gateway)
        await first.worker_id()
        assert await Hold(gateway).refusal() == FAILURE_REASON_OVERLOADED
        assert gateway.router.dispatcher.places.waiting == 0
        await first.end()


async def test_a_full_queue_refuses_at_once_and_a_crowd_makes_room(tmp_path: Path) -> None:
    async with one_worker(tmp_path, max_waiting_per_place=2) as gateway:
        first = Hold(gateway)
        await first.worker_id()
        crowd = [Hold(gateway, "crowd"), Hold(gateway, "crowd")]
        await until_waiting(gateway, 2)
        assert await Hold(gateway, "crowd").refusal() == FAILURE_REASON_OVERLOADED
        late = Hold(gateway, "late")
        done, _ = await asyncio.wait([each.answer for each in crowd], return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert [each.result().failure.reason for each in done] == [FAILURE_REASON_OVERLOADED]
        for each in (first, late, *crowd):
            await each.end()
        await gateway.until_free()


async def test_a_worker_that_is_registered_serves_those_who_wait(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway, FakeWorker() as other:
        first, second = Hold(gateway), Hold(gateway)
        await first.worker_id()
        await until_waiting(gateway, 1)
        await gateway.register(other.url, "w2", config={"max_concurrency": 1})
        assert await second.worker_id() == "w2"
        await first.end()
        await second.end()
        await gateway.until_free()
        await gateway.until_free("w2")


async def test_a_worker_that_goes_down_before_its_place_is_used_is_not_sent_to(tmp_path: Path) -> None:
    async with FakeWorker() as there, running(tmp_path, probe_interval_s=0.05, probes_to_go_down=1) as gateway:
        async with FakeWorker() as gone:
            await gateway.register(gone.url, config={"max_concurrency": 1})
            hold = Hold(gateway)
            assert await hold.worker_id() == "w1"
        await gateway.until(WORKER_STATUS_UNHEALTHY)
        await gateway.register(there.url, "w2", config={"max_concurrency": 1})
        request = item()
        request.context.request_id = hold.request_id
        call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=request))
        frames = [response.frame async for response in call]
        assert frames[0].accepted.worker_id == "w2"
        assert frames[-1].WhichOneof("frame") == "end"
        assert len(there.requests) == 1
        await gateway.until_free()


async def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    async with FakeWorker() as worker, running(tmp_path) as gateway:
        await gateway.register(worker.url, runtime="llama.cpp", config={"max_concurrency": 1})
        assert await Hold(gateway, model="no/such").refusal() == FAILURE_REASON_MODEL_NOT_FOUND
        choices = inference_pb2.Requirement(feature=FEATURE_CHOICES, param="n")
        assert await Hold(gateway, requirements=[choices]).refusal() == FAILURE_REASON_UNSUPPORTED
        gateway.worker().drain()
        assert await Hold(gateway).refusal() == FAILURE_REASON_NO_WORKER


async def test_one_request_keeps_one_place(tmp_path: Path) -> None:
    async with one_worker(tmp_path, places=2) as gateway:
        first = Hold(gateway)
        await first.worker_id()
        again = gateway.inference.HoldPlace(
            inference_pb2.HoldPlaceRequest(
                context=context_pb2.RequestContext(request_id=first.request_id), model=MODEL, party="a"
            )
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await again.read()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        # The second call's end did not take the first's place away.
        assert gateway.worker().in_flight == 1
        await first.end()
        await gateway.until_free()


async def test_one_request_that_waits_twice_keeps_one_place(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        first = Hold(gateway)
        await first.worker_id()
        request = inference_pb2.HoldPlaceRequest(
            context=context_pb2.RequestContext(request_id=ids.uuid7()), model=MODEL, party="a"
        )
        calls = [gateway.inference.HoldPlace(request) for _ in range(2)]
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        await until_waiting(gateway, 2)
        await first.end()
        done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        await gateway.register(gateway.worker().registration.endpoint, config={"max_concurrency": 2})
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert len(done) == 1
        assert [isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes].count(True) == 1
        for call in calls:
            call.cancel()
        await gateway.until_free()


async def test_a_drain_lets_nobody_wait(tmp_path: Path) -> None:
    async with one_worker(tmp_path) as gateway:
        first, second = Hold(gateway), Hold(gateway)
        await first.worker_id()
        await until_waiting(gateway, 1)
        draining = asyncio.ensure_future(gateway.router.dispatcher.drain(5))
        assert await second.refusal() == FAILURE_REASON_DRAINING
        await draining
        await first.end()


async def test_a_circuit_that_has_rested_says_so_and_lets_one_try(tmp_path: Path) -> None:
    async with (
        FakeWorker() as worker,
        running(tmp_path, failures_to_open_circuit=1, circuit_open_s=0.2, queue_wait_s=5) as gateway,
    ):
        await gateway.register(worker.url, config={"max_concurrency": 1})
        worker.scripts[MODEL] = [scripts.json_answer({"error": {"message": "broken"}}, 500)]
        assert (await gateway.generate()).failure is not None
        assert await Hold(gateway).refusal() == FAILURE_REASON_NO_WORKER
        watch = gateway.inference.WatchFleet(inference_pb2.WatchFleetRequest())
        async with asyncio.timeout(5):
            async for response in watch:
                if response.fleet.workers[0].circuit == "half_open":
                    break
        watch.cancel()
        del worker.scripts[MODEL]
        first = Hold(gateway)
        assert await first.worker_id() == "w1"
        # One at a time: a place that is kept is a request that tries.
        assert await Hold(gateway).refusal() == FAILURE_REASON_NO_WORKER
        await first.end()
        again = Hold(gateway)
        assert await again.worker_id() == "w1"
        await again.end()
        await gateway.until_free()
