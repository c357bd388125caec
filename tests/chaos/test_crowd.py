"""A thousand slow streams at once on one edge and one router: each event arrives once, in order, and all are charged. Beside
them a hundred clients that stop reading: they are cut at the bound, and the others notice nothing.

The clients are a process of their own, so that their loop is not the worker's. The services start with the bound on open files
that most shells give, which is below a thousand streams' need: they raise it themselves.
"""

import asyncio
import json
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from demo.run_install import ROOT
from tests.chaos.footprint import edge_metrics, lines_of
from tests.chaos.history import Call, Counts, Ending
from tests.chaos.numbered import Part, prompt_tokens
from tests.chaos.scene import Scene
from tests.harness.until import until_async

STREAMS, STALLED = 1000, 100
# The first event comes at once, the others when all streams are there.
EVENTS, GAP_S = 10, 0.3
# 640 KiB: the system's socket buffers and ours, which are bounded, do not hold a stalled stream's rest.
STALLED_EVENTS, STALLED_GAP_S, STALLED_PAD_BYTES = 40, 0.1, 16 * 1024
USUAL_FILES = 1024
STALL_S = 3
SETTINGS = {
    "SPEEDINFER_EDGE__LIMITS__READER_STALL_S": str(STALL_S),
    # The worker shares two cores with a thousand clients; that it answers late says nothing of its health.
    "SPEEDINFER_ROUTER__LIMITS__PROBE_TIMEOUT_S": "60",
}
CONFIG = {"w1": {"stream_options": "continuous"}}


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Children inherit it: the services now, the clients later.
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_FILES, hard))
    try:
        async with Scene(tmp_path_factory.mktemp("crowd"), ["w1"], SETTINGS, config=CONFIG) as scene:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            yield scene
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def crowd(scene: Scene, folder: Path, count: int, stalled: int = 0, events: int = EVENTS) -> list[Call]:
    """So many streams at once, of which the first few stop reading after the first event."""
    account_id, (key,) = await scene.account()
    first = len(scene.calls)
    all_there = asyncio.Event()
    for number in range(first, first + count):
        if number < first + stalled:
            # Usage with each event: the worker is dropped when the client is cut.
            scene.parts[number] = Part(events=STALLED_EVENTS, gap_s=STALLED_GAP_S, pad_bytes=STALLED_PAD_BYTES)
        else:
            scene.parts[number] = Part(events=events, gap_s=GAP_S, counts_each=False, gate=all_there, gate_at=1)
    out = folder / "calls.json"
    plan = {
        "address": scene.product.address("edge"),
        "key": key,
        "account_id": account_id,
        "first": first,
        "count": count,
        "stalled": stalled,
        "out": str(out),
    }
    clients = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.crowd_clients", json.dumps(plan)),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        over = asyncio.create_task(clients.communicate())
        taken = scene.workers["w1"].taken
        await until_async(
            lambda: over.done() or all(number in taken for number in range(first, first + count)), "all are there", 90
        )
        assert not over.done(), "the clients ended before all were there"
        scene.loop.soon(all_there.set)
        _, errors = await over
    finally:
        if clients.returncode is None:
            clients.kill()
            await clients.wait()
    assert clients.returncode == 0, errors.decode()[-2000:]
    calls = [_call(record) for record in json.loads(out.read_text())]
    scene.calls += calls
    return calls


def _call(record: dict[str, object]) -> Call:
    values = dict(record)
    values["ending"] = Ending[str(values["ending"])]
    if isinstance(usage := values["usage"], list):
        values["usage"] = Counts(*usage)
    return Call(**values)  # type: ignore[arg-type]


def why(scene: Scene) -> list[str]:
    """What the services say of requests that did not end well."""
    return [
        *lines_of(scene.product.address("admin"), "speedinfer_edge_releases", "speedinfer_edge_clients_left"),
        *lines_of(scene.router_metrics, "speedinfer_router_requests", "speedinfer_router_failed_attempts"),
        f"all is in {scene.product.folder}",
    ]


def assert_whole(calls: list[Call]) -> None:
    """Each has every event once and in order, and its usage."""
    assert Counter((call.ending, call.code) for call in calls) == {(Ending.ANSWERED, ""): len(calls)}
    for call in calls:
        assert call.text == "".join(f"w1/{call.number}:{index} " for index in range(EVENTS)), call.number
        assert call.usage == Counts(prompt_tokens(call.number), EVENTS)


@pytest.mark.processes
@pytest.mark.timeout(400)
async def test_a_thousand_slow_streams_and_a_hundred_readers_that_stop(scene: Scene, tmp_path: Path) -> None:
    await crowd(scene, tmp_path, 20, events=1)
    before = await scene.footprint()
    unmetered = edge_metrics(scene.product)["speedinfer_edge_unmetered_total"]
    calls = await crowd(scene, tmp_path, STALLED + STREAMS, STALLED)
    assert_whole(calls[STALLED:])
    # Each was cut in the middle by the edge, and has not seen its end.
    assert Counter(call.ending for call in calls[:STALLED]) == {Ending.LOST: STALLED}
    assert all(len(call.text.split()) < STALLED_EVENTS for call in calls[:STALLED])
    # They had content, so that they pay for what their worker had reported by then.
    wrong = await scene.audited(calm=True)
    assert not wrong, "\n".join([*wrong, *why(scene)])
    await scene.leaves_nothing(before, 60)
    assert edge_metrics(scene.product)["speedinfer_edge_unmetered_total"] == unmetered
