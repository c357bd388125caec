"""Every scenario's answer, by a call of its own and over the relay: the same bytes, the same end, the same failure."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING

from services.common import relay_terms
from tests.contract.router.gateway import Answer, Gateway, item, running
from tests.contract.router.relay_caller import RelayCaller, relay
from tests.fakes.scenario import Scenario
from tests.fakes.scenarios import table, time
from tests.fakes.worker import FakeWorker

OPERATIONS = {
    "chat/completions": OPERATION_CHAT_COMPLETION,
    "completions": OPERATION_COMPLETION,
    "embeddings": OPERATION_EMBEDDING,
}
# How many empty frames this one sends before its time is over is chance.
ENDLESS = "complete-then-empty-deltas"
# One registration serves all, so that scenarios with one of their own are left to `tests/faults`.
CORPUS = [
    each for each in table.ALL.values() if each not in time.SCENARIOS and not each.config and each.name != ENDLESS
]
AT_ONCE = 16


async def test_answers_are_the_same_byte_for_byte_either_way(tmp_path: Path) -> None:
    never = {"retry_burst": 1_000_000, "failures_to_open_circuit": 1_000_000}
    async with (
        FakeWorker([*table.ALL]) as storyteller,
        running(tmp_path, drain_s=2.0, **never) as gateway,
        relay(gateway.channel) as caller,
    ):
        about = {"supported_models": [each.name for each in CORPUS]}
        await gateway.register(storyteller.url, **about)
        turns = asyncio.Semaphore(AT_ONCE)

        async def play(scenario: Scenario) -> tuple[object, object]:
            storyteller.scripts[scenario.name] = scenario.script
            async with turns:
                return await alone_and_shared(gateway, caller, scenario)

        played = await asyncio.gather(*map(play, CORPUS))
        different = [each for each, told in zip(CORPUS, played, strict=True) if told[0] != told[1]]
        # Some leave bytes on a connection that is kept, where the next request finds them; alone they have one of their own.
        assert len(different) < 40, different
        again = []
        for scenario in different:
            first = await alone_and_shared(
                gateway, caller, scenario, lambda: gateway.register(storyteller.url, **about)
            )
            again.append((scenario.name, *first))
    assert len(CORPUS) > 400
    assert [told for told in again if told[1] != told[2]] == []


async def alone_and_shared(
    gateway: Gateway,
    caller: RelayCaller,
    scenario: Scenario,
    renew: Callable[[], Awaitable[object]] | None = None,
) -> tuple[object, object]:
    """What came of a call of its own, and over the relay; `renew` is called before each."""
    asked = {
        "model": scenario.name,
        "stream": scenario.stream,
        "operation": OPERATIONS[scenario.route],
        "choices": scenario.request.get("n", 1),
        "output_limit": None if scenario.route == "embeddings" else 16,
    }
    if renew is not None:
        await renew()
    # Three answers in a row without usage would put the worker out of service.
    gateway.worker().record_usage(True)
    alone = await gateway.generate(**asked)
    if renew is not None:
        await renew()
    gateway.worker().record_usage(True)
    number = caller.next_number()
    await caller.start(number, item(**asked), relay_terms.MAX_CREDIT_BYTES)
    return _told(alone), _told(await caller.whole(number))


def _told(answer: Answer) -> tuple[object, ...]:
    # How payloads are put together into frames is chance.
    kinds = [kind for kind in answer.kinds if kind not in ("data", "usage")]
    return kinds, answer.payloads, answer.usages[-1:], answer.end, answer.failure
