"""A worker's bytes, spoilt at random, through the whole product: whatever comes, a client is told of exactly one end, and pays
exactly for a good one.

The seed is fixed, so that the usual run always plays the same; FUZZ_EXAMPLES plays as many times more. A failure prints the
number of its case and the script; `FUZZ_WIRE=<number>` plays that one alone.
"""

import asyncio
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest

from services.common.money import format_usd, parse_usd
from tests.fakes import scripts
from tests.fakes.scenarios import table
from tests.fakes.scripts import Received, Step
from tests.fuzz import mutations
from tests.harness import http_client
from tests.harness.charges import charge_nanos
from tests.harness.sse import Stream, stream
from tests.harness.stage import CACHED_PRICE, COMPLETION_PRICE, MODEL, PROMPT_PRICE, Customer, Stage

SEED = 1
CASES = 60
# Spoilt bytes may leave the gateway waiting; never for long here, and the fake worker closes at the end of its script.
CONFIG = {"first_token_timeout_s": 5.0, "idle_timeout_s": 5.0}
GOOD = "good"
# A hold is given back as soon as its stream has ended.
SETTLED_S = 10.0


@pytest.mark.property
@pytest.mark.timeout(7200 if "FUZZ_EXAMPLES" in os.environ else 120)
async def test_a_worker_that_sends_anything(stage: Stage, customer: Customer) -> None:
    outcomes: dict[str, int] = {}
    headers = {"authorization": f"Bearer {customer.key}"}
    async with http_client.plain(base_url=stage.product.base_url, headers=headers, timeout=60) as http:
        balance = await _balance(http)
        for number in _numbers():
            chance = Random(f"{SEED}:{number}")
            whole = chance.random() < 0.2
            script = mutations.whole(GOOD, chance) if whole else mutations.spoilt(_begun(chance), chance)
            try:
                outcome, balance = await _play(stage, http, script, not whole, balance)
            except Exception as error:
                raise AssertionError(
                    f"case {number} of seed {SEED} (FUZZ_WIRE={number}):\n{mutations.show(script)}"
                ) from error
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print("what came of them:", outcomes)
    # A fuzzer that only ever breaks, or never does, looks at nothing.
    assert "FUZZ_WIRE" in os.environ or {"answered", "refused", "broken off"} <= set(outcomes)


def _numbers() -> Iterable[int]:
    if "FUZZ_WIRE" in os.environ:
        return [int(os.environ["FUZZ_WIRE"])]
    return range(CASES * int(os.environ.get("FUZZ_EXAMPLES", "1") or 1))


def _begun(chance: Random) -> list[Step]:
    return mutations.base(GOOD, chance) if chance.random() < 0.6 else mutations.known(chance)


async def _play(
    stage: Stage, http: httpx.AsyncClient, script: list[Step], streams: bool, balance: int
) -> tuple[str, int]:
    """One case and a good request after it. What came of it, and the balance."""
    stage.play(replace(table.ALL[GOOD], script=_once(script), config=CONFIG))
    seen = await _ask(http, streams)
    usage = _assert_one_end(seen) if streams else _assert_whole(seen)
    after = await _balance(http)
    _assert_paid(seen, usage, balance - after)
    good = await _ask(http, True)
    assert good.done, f"a good request after it: {good.payloads}"
    assert good.content == "Hello, world"
    balance = await _balance(http)
    _assert_paid(good, good.usage, after - balance)
    return ("answered" if usage is not None else "broken off" if seen.status == 200 else "refused"), balance


async def _ask(http: httpx.AsyncClient, streams: bool) -> Stream:
    messages = [{"role": "user", "content": "Say hello."}]
    return await stream(http, "/chat/completions", {"model": MODEL, "messages": messages, "stream": streams})


def _once(script: list[Step]) -> Any:
    """The first request gets the spoilt script (and one that is sent again, the good one)."""
    played: list[Received] = []

    def choose(request: Received) -> list[Step]:
        played.append(request)
        return script if len(played) == 1 else scripts.chat_stream(GOOD, ["Hello", ", world"], scripts.usage(12, 2))

    return choose


def _assert_one_end(seen: Stream) -> dict[str, Any] | None:
    assert seen.payloads, "nothing at all"
    assert seen.done is (seen.error is None), "exactly one of [DONE] and an error"
    assert seen.payloads.count("[DONE]") == seen.done
    if seen.error is not None:
        assert set(seen.error) == {"message", "type", "param", "code"}
        assert seen.usage is None, "a failure with usage"
        assert (seen.status == 200) == seen.headers["content-type"].startswith("text/event-stream")
        return None
    assert seen.status == 200
    assert seen.usage is not None
    return seen.usage


def _assert_whole(seen: Stream) -> dict[str, Any] | None:
    assert len(seen.payloads) == 1
    if seen.status == 200:
        assert seen.usage is not None, "an answer without usage"
        return seen.usage
    assert seen.error is not None
    assert set(seen.error) == {"message", "type", "param", "code"}
    return None


def _assert_paid(seen: Stream, usage: dict[str, Any] | None, paid: int) -> None:
    if usage is None:
        assert paid == 0, f"{paid} nano-USD for a failure"
        return
    assert paid == charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE, CACHED_PRICE)
    frame = next(payload for payload in seen.payloads if json.loads(payload).get("usage"))
    assert f'"cost":{format_usd(paid)}' in frame


async def _balance(http: httpx.AsyncClient) -> int:
    """The customer's balance once nothing is held, in nano-USD."""
    async with asyncio.timeout(SETTLED_S):
        while True:
            account = (await http.get("/usage")).json()
            if parse_usd(account["held"]) == 0:
                return parse_usd(account["balance"])
