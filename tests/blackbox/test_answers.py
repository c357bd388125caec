"""Answers and what they cost: the balance is the credit minus the exact price of the usage frames that clients saw."""

import asyncio
from typing import Any

from services.common.ids import is_uuid7
from services.common.money import parse_usd
from tests.blackbox.conftest import Customer, customer_of
from tests.fakes.canary_words import ANSWER
from tests.harness.charges import charge_nanos, total_nanos
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.sse import DONE, Stream, stream
from tests.harness.upstream import MODEL, Script, Upstream

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Say hello."}]
CREDIT = parse_usd("10")


def chat(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": MESSAGES} | more


async def test_a_whole_answer_has_usage_with_its_cost_and_is_charged_that(
    upstream: Upstream, customer: Customer
) -> None:
    answer = await customer.http.post(CHAT, json=chat(max_tokens=16))
    assert answer.status_code == 200
    body = answer.json()
    assert body["choices"][0]["message"]["content"] == "Hello world!"
    assert body["model"] == MODEL
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (12, 5)
    assert is_uuid7(answer.headers["x-request-id"])
    # 12 at 0.20 and 5 at 0.60 per million: the contract's own figure.
    assert '"cost":0.000005400' in answer.text.replace(" ", "")
    account = customer.product.settled(customer.account_id)
    assert account["balance"] == account["available"] == "9.999994600"
    entry = customer.product.entries(customer.account_id)[-1]
    assert (entry["kind"], entry["amount"], entry["model"]) == ("charge", "-0.000005400", MODEL)
    assert entry["request_id"] == answer.headers["x-request-id"]
    assert upstream.seen.bodies[0]["max_tokens"] == 16


async def test_a_stream_ends_with_one_usage_frame_before_done(upstream: Upstream, customer: Customer) -> None:
    seen = await stream(customer.http, CHAT, chat(stream=True, stream_options={"include_usage": True}))
    assert seen.status == 200
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.content == "Hello world!"
    assert seen.payloads[-1] == DONE
    last = seen.frames[-1]
    assert last["choices"] == []
    assert seen.usage is not None
    assert last["usage"] == seen.usage
    assert '"cost":0.000005400' in seen.payloads[-2].replace(" ", "")
    assert customer.product.settled(customer.account_id)["balance"] == "9.999994600"


async def test_a_client_that_did_not_ask_for_usage_gets_it_with_one_empty_choice(
    upstream: Upstream, customer: Customer
) -> None:
    seen = await stream(customer.http, CHAT, chat(stream=True))
    assert seen.done
    assert seen.frames[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert seen.usage is not None
    assert upstream.seen.bodies[0]["stream_options"]["include_usage"] is True


async def test_a_client_that_said_no_usage_gets_none_and_is_charged_all_the_same(
    upstream: Upstream, customer: Customer
) -> None:
    seen = await stream(customer.http, CHAT, chat(stream=True, stream_options={"include_usage": False}))
    assert seen.done
    assert seen.usage is None
    assert customer.product.settled(customer.account_id)["balance"] == "9.999994600"


async def test_cached_tokens_have_their_own_price(upstream: Upstream, customer: Customer) -> None:
    upstream.plays(Script(prompt_tokens=27_147, cached_tokens=27_146, completion_tokens=351))
    # A price for this account alone leaves the other tests' as it is.
    customer.product.price(
        MODEL,
        "1.40",
        "4.40",
        "--cached-prompt",
        "0.26",
        "--account",
        customer.account_id,
        "--max-output-tokens",
        "4096",
    )
    answer = await customer.http.post(CHAT, json=chat())
    assert answer.status_code == 200
    # The contract's own figure.
    assert customer.product.settled(customer.account_id)["balance"] == "9.991396240"


async def test_balances_equal_credit_minus_the_price_of_what_clients_saw(
    upstream: Upstream, product: Product, customer: Customer
) -> None:
    upstream.plays(Script(prompt_tokens=7, completion_tokens=3))
    whole = await asyncio.gather(*(customer.http.post(CHAT, json=chat(max_tokens=8)) for _ in range(20)))
    streams = await asyncio.gather(*(stream(customer.http, CHAT, chat(max_tokens=8, stream=True)) for _ in range(20)))
    usages = [answer.json()["usage"] for answer in whole] + [seen.usage for seen in streams]
    assert all(usages)
    account = product.settled(customer.account_id)
    charged = total_nanos((usage for usage in usages if usage), "0.20", "0.60")
    assert parse_usd(account["balance"]) == CREDIT - charged
    states = [held.state for held in reservations(product, customer.account_id)]
    assert states == ["settled"] * 40
    assert product.run("ledger", "verify").code == 0


async def test_a_worker_without_usage_costs_nothing_streamed(upstream: Upstream, customer: Customer) -> None:
    upstream.plays(Script(reports_usage=False))
    seen = await stream(customer.http, CHAT, chat(stream=True))
    assert seen.error is not None
    assert seen.error["code"] == "usage_missing"
    assert not seen.done
    await _free_of_charge(customer)
    await _answers_again(upstream, customer)


async def test_a_worker_without_usage_costs_nothing_whole(upstream: Upstream, customer: Customer) -> None:
    upstream.plays(Script(reports_usage=False))
    answer = await customer.http.post(CHAT, json=chat())
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "usage_missing"
    assert answer.headers["x-should-retry"] == "false"
    await _free_of_charge(customer)
    await _answers_again(upstream, customer)


async def test_a_worker_that_dies_in_the_middle_costs_nothing(upstream: Upstream, customer: Customer) -> None:
    upstream.plays(Script(dies_after=2))
    seen = await stream(customer.http, CHAT, chat(stream=True))
    assert seen.error is not None
    assert not seen.done
    assert not any(choice.get("finish_reason") for frame in seen.frames for choice in frame.get("choices", []))
    await _free_of_charge(customer)
    await _answers_again(upstream, customer)


async def test_twenty_at_once_on_credit_for_one(upstream: Upstream, product: Product) -> None:
    upstream.plays(Script(held_back=True))
    body = chat(max_tokens=100)
    account_id = product.account("0.000200")
    async with customer_of(product, account_id) as customer:
        calls = [asyncio.create_task(customer.http.post(CHAT, json=body)) for _ in range(20)]
        # Those that are refused come back at once; the others wait for the worker.
        while sum(call.done() for call in calls) + len(upstream.seen.bodies) < 20:
            await asyncio.sleep(0.02)
        held = parse_usd(product.balance(account_id)["held"])
        upstream.go()
        answers = await asyncio.gather(*calls)
        served = [answer for answer in answers if answer.status_code == 200]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert served
        assert refused
        assert held % len(served) == 0
        one_hold = held // len(served)
        assert len(served) == parse_usd("0.000200") // one_hold
        # While others are in flight it is they who stand in the way; what does not fit in any case is a 402.
        assert {(a.status_code, a.json()["error"]["code"]) for a in refused} <= {
            (402, "insufficient_credit"),
            (429, "holds_in_flight"),
        }
        account = product.settled(account_id)
        charged = total_nanos((answer.json()["usage"] for answer in served), "0.20", "0.60")
        assert parse_usd(account["balance"]) == parse_usd("0.000200") - charged
        assert parse_usd(account["balance"]) >= 0


async def test_credit_that_is_too_small_in_any_case_is_a_402_that_says_both_figures(
    upstream: Upstream, product: Product
) -> None:
    async with customer_of(product, product.account("0.000001")) as customer:
        answer = await customer.http.post(CHAT, json=chat(max_tokens=100))
    assert answer.status_code == 402
    error = answer.json()["error"]
    assert error["code"] == "insufficient_credit"
    assert "0.000001" in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert upstream.seen.bodies == []


async def test_fifty_streams_at_once_are_byte_equal_and_settled(upstream: Upstream, customer: Customer) -> None:
    pieces = tuple(f'{index}:é漢\U0001f600\n"\\ ' for index in range(64))
    upstream.plays(Script(pieces=pieces, completion_tokens=64, gap_s=0.005))
    seen: list[Stream] = await asyncio.gather(
        *(stream(customer.http, CHAT, chat(stream=True, max_tokens=64)) for _ in range(50))
    )
    assert all(one.content == "".join(pieces) for one in seen)
    assert all(one.done for one in seen)
    usages = [one.usage for one in seen if one.usage]
    assert len(usages) == 50
    account = customer.product.settled(customer.account_id)
    assert parse_usd(account["balance"]) == CREDIT - 50 * charge_nanos(usages[0], "0.20", "0.60")
    assert {held.state for held in reservations(customer.product, customer.account_id)} == {"settled"}


async def test_frames_are_relayed_byte_for_byte(upstream: Upstream, customer: Customer) -> None:
    seen = await stream(customer.http, CHAT, chat(stream=True))
    first = seen.payloads[0]
    assert first == (
        f'{{"id": "chatcmpl-{ANSWER}", "object": "chat.completion.chunk", "created": 1, "model": "acme/model-1",'
        ' "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": null}]}'
    )


async def _free_of_charge(customer: Customer) -> None:
    account = customer.product.settled(customer.account_id)
    assert account["balance"] == "10.000000000"
    assert {held.state for held in reservations(customer.product, customer.account_id)} == {"released"}


async def _answers_again(upstream: Upstream, customer: Customer) -> None:
    """Leave the worker as it was found: serving, and with no failures counted against it."""
    upstream.plays(Script())
    assert (await customer.http.post(CHAT, json=chat())).status_code == 200
