"""Before a 402 a worker is asked how many tokens the prompt has: when, how often, and what comes of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from speedinfer.billing.v1.reservation_pb2 import Refusal, RefusalReason
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import (
    NO_COUNT_BUSY,
    NO_COUNT_FAILED,
    NO_COUNT_UNABLE,
    CountTokensResponse,
    GenerateItem,
)

from services.common.money import to_money
from services.edge import prompt_count
from tests.fakes.scripted_router import WORKER, accepted, data, end, worker
from tests.unit.edge.conftest import Answer, Make, Stand, eventually

WHOLE = b'{"id":"x","object":"chat.completion","choices":[{"message":{"content":"Hi"}}],"usage":{}}'
IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def refusal(hold: int, reason: str = "INSUFFICIENT_CREDIT", *, may_help: bool = True) -> Refusal:
    return Refusal(
        reason=RefusalReason.Value(f"REFUSAL_REASON_{reason}"),
        message="no",
        hold=to_money(hold),
        available=to_money(10),
        count_may_help=may_help,
    )


async def play(_item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted()
    yield data(WHOLE)
    yield end(prompt=7)


async def poor(make: Make, **limits: Any) -> Stand:
    """A stand whose worker counts, and whose caller has not enough for the bound."""
    stand = await make(**limits)
    stand.router.change([worker(counts_tokens=True)], tell=True)
    stand.router.script = play
    stand.billing.refusal = refusal(1000)
    await eventually(lambda: stand.edge._routers.first.picture.workers_of("acme/model-1"))
    await eventually(lambda: stand.edge._routers.first.picture.workers_of("acme/model-1").count_tokens)
    return stand


def assert_refused(answer: Answer, hold: str = "0.000001000") -> None:
    assert (answer.status, answer.error["code"]) == (402, "insufficient_credit")
    assert hold in answer.error["message"]
    assert answer.headers["x-should-retry"] == "false"


async def test_a_count_in_place_of_the_bound_is_held_under_an_id_of_its_own(make_stand: Make) -> None:
    stand = await poor(make_stand)
    tools = [{"type": "function", "function": {"name": "f"}}]
    answer = await stand.post(stand.body(tools=tools, stream=False, max_tokens=9, temperature=0.5))
    assert answer.status == 200
    [asked] = stand.router.asked
    assert [member.name for member in asked.members] == ["messages", "tools", "temperature"]
    assert 0 < asked.context.remaining_ms <= 2_000
    (first, refused), (second, held), *rest = stand.billing.calls
    assert (first, second, rest) == ("reserve", "reserve", [("settle", held)])
    # A refused id is not used again, and the client is told of the one that is charged.
    assert refused != held == answer.headers["x-request-id"]
    item = stand.billing.only.item
    assert (item.counted_prompt_tokens, item.context.request_id) == (7, held)
    assert item.output_limit == 9
    [dispatched] = stand.router.items
    assert (dispatched.context.request_id, dispatched.counted_prompt_tokens) == (held, 7)
    assert dispatched.counted_by == WORKER
    assert stand.metric("prompt_counts_total", outcome="counted") == 1


@pytest.mark.parametrize(
    "why",
    [
        refusal(1000, may_help=False),
        refusal(1000, "HOLDS_IN_FLIGHT", may_help=False),
        refusal(1000, "LIMIT", may_help=False),
    ],
    ids=["no count would do", "in flight", "limit"],
)
async def test_no_worker_is_asked_where_a_count_would_not_help(make_stand: Make, why: Refusal) -> None:
    stand = await poor(make_stand)
    stand.billing.refusal = why
    assert (await stand.post()).status in (402, 429)
    assert stand.router.asked == []
    assert stand.billing.names() == ["reserve"]


async def test_no_router_is_asked_of_what_no_worker_could_count(make_stand: Make) -> None:
    stand = await poor(make_stand)
    assert_refused(await stand.post(stand.body(messages=[{"role": "user", "content": IMAGE}])))
    assert_refused(await stand.post({"model": "acme/model-1", "prompt": [1, 2, 3]}, "/v1/completions"))
    assert_refused(await stand.post({"model": "acme/model-1", "input": "x"}, "/v1/embeddings"))
    stand.router.change([worker(counts_tokens=False)], tell=True)
    await eventually(lambda: not stand.edge._routers.first.picture.workers_of("acme/model-1").count_tokens)
    assert_refused(await stand.post())
    assert stand.router.asked == []


@pytest.mark.parametrize(
    "nothing",
    [
        CountTokensResponse(no_count=NO_COUNT_UNABLE),
        CountTokensResponse(no_count=NO_COUNT_BUSY),
        CountTokensResponse(no_count=NO_COUNT_FAILED, worker_id=WORKER),
        CountTokensResponse(prompt_tokens=0),
        CountTokensResponse(prompt_tokens=-3),
        CountTokensResponse(),
    ],
    ids=["unable", "busy", "failed", "zero", "negative", "empty"],
)
async def test_without_a_count_the_refusal_stands(make_stand: Make, nothing: CountTokensResponse) -> None:
    stand = await poor(make_stand)
    stand.router.count = nothing
    assert_refused(await stand.post())
    assert stand.billing.names() == ["reserve"]
    assert stand.metric("prompt_counts_total", outcome="not_counted") == 1


async def test_a_router_that_is_silent_is_waited_for_only_so_long(make_stand: Make) -> None:
    stand = await poor(make_stand, count_timeout_s=0.05)
    stand.router.counts.clear()
    assert_refused(await stand.post())
    assert stand.billing.names() == ["reserve"]


async def test_a_count_that_does_not_suffice_is_a_402_by_the_count_and_nonsense_one_by_the_bound(
    make_stand: Make,
) -> None:
    stand = await poor(make_stand)
    stand.billing.counted_refusal = refusal(500, may_help=False)
    assert_refused(await stand.post(), "0.000000500")
    stand.billing.counted_refusal = refusal(2**40, may_help=False)
    assert_refused(await stand.post())
    assert stand.router.items == []


async def test_own_holds_in_the_way_of_a_counted_prompt_are_told_so(make_stand: Make) -> None:
    stand = await poor(make_stand)
    stand.billing.counted_refusal = refusal(500, "HOLDS_IN_FLIGHT")
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (429, "holds_in_flight")
    assert 1 <= int(answer.headers["retry-after"]) <= 60


async def test_a_key_asks_one_question_at_a_time_and_few_wait_for_it(
    make_stand: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_count, "MAX_WAITING_PER_KEY", 2)
    stand = await poor(make_stand, count_timeout_s=30)
    stand.router.counts.clear()
    posts = [asyncio.create_task(stand.post()) for _ in range(6)]
    # One asks and two wait; the others are told at once.
    await eventually(lambda: sum(post.done() for post in posts) == 3)
    # The others may be told before the question has reached the router.
    await eventually(lambda: stand.router.asked)
    assert len(stand.router.asked) == 1
    for post in posts:
        if post.done():
            assert_refused(post.result())
    stand.router.counts.set()
    answers = await asyncio.gather(*posts)
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 402, 402, 402]
    assert len(stand.router.asked) == 3
