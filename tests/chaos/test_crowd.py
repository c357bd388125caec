"""A thousand slow streams at once on one edge and one router: each event arrives once, in order, and all are charged. Among
them a hundred clients that stop reading: they are cut at the bound, and the others notice nothing.

The clients are a process of their own, so that their loop is not the worker's.
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
from tests.chaos.footprint import edge_metrics
from tests.chaos.history import Call, Counts, Ending
from tests.chaos.numbered import Part, prompt_tokens
from tests.chaos.scene import Scene

STREAMS, STALLED = 1000, 100
EVENTS, GAP_S = 25, 0.4
# So much that neither the system's socket buffers (4 MiB on loopback) nor ours hold a stalled stream's rest.
STALLED_EVENTS, STALLED_GAP_S, STALLED_PAD_BYTES = 160, 0.1, 64 * 1024
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
    # The services and the clients are children, and inherit it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        async with Scene(tmp_path_factory.mktemp("crowd"), ["w1"], SETTINGS, config=CONFIG) as scene:
            yield scene
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def crowd(scene: Scene, folder: Path, count: int, stalled: int = 0, events: int = EVENTS) -> list[Call]:
    """So many streams at once, of which the first few stop reading after the first event."""
    account_id, (key,) = await scene.account()
    first = len(scene.calls)
    for number in range(first, first + count):
        if number < first + stalled:
            # Usage with each event: the worker is dropped when the client is cut.
            scene.parts[number] = Part(events=STALLED_EVENTS, gap_s=STALLED_GAP_S, pad_bytes=STALLED_PAD_BYTES)
        else:
            scene.parts[number] = Part(events=events, gap_s=GAP_S, counts_each=False)
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
        _, errors = await clients.communicate()
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


def assert_whole(calls: list[Call]) -> None:
    """Each has every event once and in order, and its usage."""
    assert Counter((call.ending, call.code) for call in calls) == {(Ending.ANSWERED, ""): len(calls)}
    for call in calls:
        assert call.text == "".join(f"w1/{call.number}:{index} " for index in range(EVENTS)), call.number
        assert call.usage == Counts(prompt_tokens(call.number), EVENTS)


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
    assert await scene.audited(calm=True) == []
    await scene.leaves_nothing(before, 60)
    assert edge_metrics(scene.product)["speedinfer_edge_unmetered_total"] == unmetered
