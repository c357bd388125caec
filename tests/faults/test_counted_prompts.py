"""Who has not enough for the bound on a prompt and enough for the prompt is served, by the whole product; and what workers do
wrong with the question costs nobody anything but the 402 that there would have been."""

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

from services.common.money import parse_usd
from tests.fakes import scripts
from tests.fakes.canary_words import PROMPT
from tests.fakes.scenario import Answered, Scenario
from tests.fakes.scripts import Hang, Received, Step
from tests.harness.reservations import reservations
from tests.harness.sse import stream
from tests.harness.stage import WORKER_ID, Customer, Stage
from tests.harness.until import until_async

# 4,000 bytes and more, which a bound takes for as many tokens: USD 0.0008 at the stage's price, and a fifth of it by the count.
WORDS = PROMPT + " and so on" * 400
PROMPT_TOKENS = 800
COUNTED_USD = "0.000300"
LIMIT = 50


def counting(count: Any, *, reported: int = PROMPT_TOKENS, generation: Iterable[Step] | None = None) -> Scenario:
    """A worker whose counting route answers `count` (or does these steps), and that reports so many prompt tokens."""

    def play(request: Received) -> Iterable[Step]:
        if request.path == "/tokenize":
            return count if isinstance(count, list) else [scripts.json_answer({"count": count, "tokens": []})]
        if generation is not None:
            return generation
        usage = scripts.usage(reported, 2)
        if request.json.get("stream"):
            return scripts.chat_stream("counted", ["Hel", "lo"], usage)
        return [scripts.json_answer(scripts.chat_whole("counted", "Hello", usage))]

    config = {"count_tokens": "vllm"}
    return Scenario("counted", (), play, Answered("Hello", reported, 2), stream=False, config=config)


class Scene:
    """One customer with little credit."""

    def __init__(self, stage: Stage, scenario: Scenario, credit: str) -> None:
        stage.play(scenario)
        # The edge has the worker as it is registered now: health asks the router.
        httpx.get(f"{stage.product.url}/health")
        self.stage = stage
        self.scenario = scenario
        account_id = stage.product.account(credit)
        self.customer = Customer(account_id, stage.product.key(account_id))

    def body(self, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": WORDS}]
        return self.stage.body(self.scenario, messages=messages, max_tokens=LIMIT, **more)

    async def ask(self, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.customer.key}"}
        async with httpx.AsyncClient(base_url=self.stage.product.base_url, headers=headers, timeout=60) as http:
            return await http.post("/chat/completions", json=self.body(**more))

    def asked(self) -> list[Received]:
        return [request for request in self.stage.received() if request.path == "/tokenize"]

    def generated(self) -> int:
        return sum(request.path.endswith("/chat/completions") for request in self.stage.received())

    def balance(self) -> int:
        return parse_usd(self.stage.product.settled(self.customer.account_id)["balance"])

    def assert_refused(self, answer: httpx.Response, credit: str) -> None:
        assert answer.status_code == 402, answer.text
        assert answer.json()["error"]["code"] == "insufficient_credit"
        assert answer.headers["x-should-retry"] == "false"
        assert self.generated() == 0
        assert self.balance() == parse_usd(credit)
        assert reservations(self.stage.product, self.customer.account_id) == []


async def test_who_can_pay_for_the_prompt_is_served_and_charged_once(stage: Stage) -> None:
    scene = Scene(stage, counting(PROMPT_TOKENS), COUNTED_USD)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    answer = await scene.ask(tools=tools, chat_template_kwargs={"thinking": False}, temperature=0.5)
    assert answer.status_code == 200, answer.text
    [asked] = scene.asked()
    assert asked.json == {
        "model": "counted",
        "messages": [{"role": "user", "content": WORDS}],
        "tools": tools,
        "chat_template_kwargs": {"thinking": False},
    }
    charge = stage.charge(Answered("Hello", PROMPT_TOKENS, 2))
    assert scene.balance() == parse_usd(COUNTED_USD) - charge
    headers = {"authorization": f"Bearer {scene.customer.key}"}
    told = httpx.get(f"{stage.product.base_url}/requests/{answer.headers['x-request-id']}", headers=headers).json()
    assert parse_usd(told["cost"]) == charge
    [held] = reservations(stage.product, scene.customer.account_id)
    assert (held.reservation_id, held.state) == (answer.headers["x-request-id"], "settled")
    # Of another who has credit for the bound nothing is asked.
    rich = stage.customer()
    await stage.ask(rich, scene.scenario)
    assert len(scene.asked()) == 1


async def test_a_stream_is_served_the_same(stage: Stage) -> None:
    scene = Scene(stage, counting(PROMPT_TOKENS), COUNTED_USD)
    headers = {"authorization": f"Bearer {scene.customer.key}"}
    async with httpx.AsyncClient(base_url=stage.product.base_url, headers=headers, timeout=60) as http:
        seen = await stream(http, "/chat/completions", scene.body(stream=True))
    assert (seen.content, seen.done) == ("Hello", True)
    assert scene.balance() == parse_usd(COUNTED_USD) - stage.charge(Answered("Hello", PROMPT_TOKENS, 2))


async def test_one_whose_own_request_is_in_the_way_is_told_when_to_come_back(stage: Stage) -> None:
    scene = Scene(stage, counting(PROMPT_TOKENS, generation=[Hang()]), COUNTED_USD)
    first = asyncio.create_task(scene.ask())
    try:
        await until_async(lambda: scene.generated(), "the first runs")
        second = await scene.ask()
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert (second.status_code, second.json()["error"]["code"]) == (429, "holds_in_flight")
    assert 1 <= int(second.headers["retry-after"]) <= 60
    assert "x-should-retry" not in second.headers
    # When the first is over the same request is served.
    assert scene.balance() == parse_usd(COUNTED_USD)
    stage.play(counting(PROMPT_TOKENS))
    assert (await scene.ask()).status_code == 200


@pytest.mark.parametrize(
    "count",
    [
        -1,
        0,
        2**31 - 1,
        2**31,
        800.0,
        "800",
        [scripts.json_answer({"count": 800}, 500)],
        [scripts.json_answer({"detail": "Not Found"}, 404)],
        [scripts.answer(200, b'{"count": 800, "tokens": [' + b"1," * 2**22 + b"1]}")],
        [Hang()],
    ],
    ids=["negative", "zero", "huge", "too huge", "fraction", "text", "500", "404", "too long", "never"],
)
async def test_without_a_count_it_is_the_402_that_there_would_have_been(stage: Stage, count: Any) -> None:
    scene = Scene(stage, counting(count), COUNTED_USD)
    answer = await scene.ask()
    scene.assert_refused(answer, COUNTED_USD)
    assert len(scene.asked()) == 1
    # The figure is the bound's, not a worker's nonsense: over 4,000 tokens of USD 0.20 per million.
    assert "would hold 0.000" in answer.json()["error"]["message"]
    # Nothing is held against the worker.
    rich = stage.customer()
    await stage.ask(rich, scene.scenario)
    stage.assert_charged(rich, scene.scenario)


async def test_no_worker_is_asked_where_the_answer_alone_is_too_dear(stage: Stage) -> None:
    credit = "0.000029"
    scene = Scene(stage, counting(1), credit)
    scene.assert_refused(await scene.ask(), credit)
    scene.assert_refused(await scene.ask(documents=[{"text": "x"}]), credit)
    assert scene.asked() == []


async def test_what_the_counting_route_cannot_be_told_is_not_counted(stage: Stage) -> None:
    scene = Scene(stage, counting(1), COUNTED_USD)
    scene.assert_refused(await scene.ask(documents=[{"text": "x"}]), COUNTED_USD)
    assert scene.asked() == []


async def test_a_worker_that_counts_short_does_so_once(stage: Stage) -> None:
    scene = Scene(stage, counting(5, reported=2_000), "0.000050")
    charge = stage.charge(Answered("Hello", 2_000, 2))
    assert (await scene.ask()).status_code == 200
    # What it reports is charged: below zero, and then nothing is held.
    assert scene.balance() == parse_usd("0.000050") - charge < 0
    httpx.get(f"{stage.product.url}/health")
    scene.customer = Customer(account := stage.product.account("0.000050"), stage.product.key(account))
    assert (await scene.ask()).status_code == 402
    assert len(scene.asked()) == 1
    short = f'speedinfer_router_token_counts_short_total{{worker="{WORKER_ID}"}}'
    assert await _sample(stage.metrics_url, short) == 1
    billing = f"http://{stage.product.address('billing metrics')}"
    assert await _sample(billing, 'speedinfer_billing_hold_to_charge_ratio_bucket{le="0.5"}') >= 1


async def _sample(metrics_url: str, name: str) -> float:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{metrics_url}/metrics")).text
    return float(next(line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(name)))
