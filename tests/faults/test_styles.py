"""Each server's own ways (`tests/fakes/styles.py`): it registers with a token generated, and answers every ordinary request."""

from collections.abc import Iterator
from typing import Any

import pytest

from services.common.money import parse_usd
from tests.fakes import styles
from tests.fakes.worker import FakeWorker
from tests.harness import http_client
from tests.harness.charges import charge_nanos
from tests.harness.fake_worker import ThreadedWorker
from tests.harness.sse import Stream, stream
from tests.harness.stage import COMPLETION_PRICE, CREDIT, PROMPT_PRICE, Customer, Stage

RUNTIMES = {"openai": "vllm", "trtllm": "tensorrt-llm", "triton-openai": "triton"}
TEXT = "".join(styles.WORDS)
CHAT = "chat/completions"
MESSAGES = [{"role": "user", "content": "Say hello."}]
# Fields that are nobody's own; a strict server is not to be shown what it does not know.
ORDINARY = {
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["\n\n"],
    "user": "u",
    "metadata": {"a": "b"},
    "store": True,
}


def registration(style: styles.Style, url: str, name: str = "", **config: Any) -> dict[str, Any]:
    """Of a worker that serves `acme/{name}`; the name is the style's where it has none of its own."""
    name = name or style
    return {
        "worker_id": f"style-{name}",
        "worker_type": "test",
        "runtime": RUNTIMES[style],
        "runtime_endpoint": url,
        "supported_models": [f"acme/{name}"],
        "runtime_config": {"transport": "openai", "model_map": {f"acme/{name}": "engine"}, **config},
    }


@pytest.fixture(scope="module", params=styles.ALL)
def served(request: pytest.FixtureRequest, stage: Stage) -> Iterator[styles.Style]:
    """A style, with a worker of it registered as `acme/{style}`."""
    style: styles.Style = request.param
    with ThreadedWorker(FakeWorker(["engine"], style=style)) as worker:
        stage.product.price(f"acme/{style}", PROMPT_PRICE, COMPLETION_PRICE)
        shown = stage.product.register(registration(style, worker.worker.url))
        assert shown["status"] == "healthy", shown
        yield style
        stage.product.command("workers", "remove", f"style-{style}")


async def ask(stage: Stage, customer: Customer, style: str, route: str, **more: Any) -> Stream:
    prompt = {"messages": MESSAGES} if route == CHAT else {"prompt": "Say hello."}
    headers = {"authorization": f"Bearer {customer.key}"}
    async with http_client.plain(base_url=stage.product.base_url, headers=headers, timeout=60) as http:
        return await stream(http, f"/{route}", {"model": f"acme/{style}", **prompt, **more})


def assert_paid(stage: Stage, customer: Customer, completion: int) -> None:
    usage = {"prompt_tokens": styles.PROMPT_TOKENS, "completion_tokens": completion}
    paid = parse_usd(CREDIT) - parse_usd(stage.product.settled(customer.account_id)["balance"])
    assert paid == charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE)


@pytest.mark.parametrize("route", [CHAT, "completions"])
@pytest.mark.parametrize(
    "more", [{}, ORDINARY, {"stream_options": {"include_usage": True}}], ids=["bare", "usual", "asked"]
)
async def test_a_stream(
    more: dict[str, Any], route: str, served: styles.Style, stage: Stage, customer: Customer
) -> None:
    seen = await ask(stage, customer, served, route, stream=True, **more)
    assert seen.done, seen.payloads
    choices = [choice for frame in seen.frames for choice in frame["choices"]]
    assert "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices) == TEXT
    assert [choice["finish_reason"] for choice in choices if choice.get("finish_reason")] == ["stop"]
    assert {frame["model"] for frame in seen.frames} == {f"acme/{served}"}
    assert seen.usage is not None
    assert (seen.usage["prompt_tokens"], seen.usage["completion_tokens"]) == (styles.PROMPT_TOKENS, len(styles.WORDS))
    assert_paid(stage, customer, len(styles.WORDS))


@pytest.mark.parametrize("route", [CHAT, "completions"])
@pytest.mark.parametrize("more", [{}, ORDINARY, {"max_tokens": 2}], ids=["bare", "usual", "limited"])
async def test_a_whole_answer(
    more: dict[str, Any], route: str, served: styles.Style, stage: Stage, customer: Customer
) -> None:
    seen = await ask(stage, customer, served, route, **more)
    assert seen.status == 200, seen.payloads
    choice = seen.frames[0]["choices"][0]
    words = styles.WORDS[: more.get("max_tokens", len(styles.WORDS))]
    assert (choice["text"] if "text" in choice else choice["message"]["content"]) == "".join(words)
    assert_paid(stage, customer, len(words))


@pytest.mark.parametrize(
    ("style", "says"), [("trtllm", "Extra inputs are not permitted"), ("triton-openai", "not supported")]
)
async def test_what_a_server_refuses_is_the_clients_to_know(
    style: styles.Style, says: str, stage: Stage, customer: Customer
) -> None:
    with ThreadedWorker(FakeWorker(["engine"], style=style, lacks=styles.OLDER_LACK)) as worker:
        stage.product.price("acme/refusing", PROMPT_PRICE, COMPLETION_PRICE)
        assert stage.product.register(registration(style, worker.worker.url, "refusing"))["status"] == "healthy"
        seen = await ask(stage, customer, "refusing", CHAT, logit_bias={"5": 1})
        stage.product.command("workers", "remove", "style-refusing")
    assert seen.status == 400
    assert seen.error is not None
    assert says in seen.error["message"]
    assert stage.product.settled(customer.account_id)["available"] == "10.000000000"


# What some runtime or OpenAI's platform takes and nobody needs; a strict server is shown only what it knows.
EXTRAS: dict[str, Any] = {
    "allowed_token_ids": [1], "bad_words": ["x"], "chat_template_kwargs": {"a": 1}, "documents": [], "dry_base": 1.5,
    "early_stopping": True, "guided_whitespace_pattern": " ", "ignore_eos": True, "min_p": 0.1, "min_tokens": 1, "mirostat": 1,
    "modalities": ["text"], "no_stop_trim": True, "prediction": {}, "reasoning_format": "none", "top_k": 5, "verbosity": "low",
}  # fmt: skip
_TRTLLM = {"early_stopping", "ignore_eos", "min_p", "min_tokens", "top_k"}
LEFT_OUT = {
    ("trtllm", CHAT): EXTRAS.keys() - _TRTLLM - {"chat_template_kwargs", "documents"},
    ("trtllm", "completions"): EXTRAS.keys() - _TRTLLM,
    ("triton-openai", CHAT): EXTRAS.keys() - {"ignore_eos", "min_tokens"},
    ("triton-openai", "completions"): EXTRAS.keys() - {"ignore_eos", "min_tokens"},
    ("openai", CHAT): {"dry_base", "early_stopping", "mirostat", "no_stop_trim", "reasoning_format"},
    ("openai", "completions"): {
        "chat_template_kwargs", "documents", "dry_base", "early_stopping", "mirostat", "modalities", "no_stop_trim",
        "prediction", "reasoning_format", "verbosity",
    },
}  # fmt: skip


@pytest.mark.parametrize("route", [CHAT, "completions"])
async def test_a_server_is_shown_the_extras_that_its_runtime_knows(
    route: str, served: styles.Style, stage: Stage, customer: Customer
) -> None:
    seen = await ask(stage, customer, served, route, **EXTRAS)
    assert seen.status == 200, seen.payloads
    assert set(seen.headers["x-speedinfer-ignored-fields"].split(", ")) == LEFT_OUT[served, route]
    assert_paid(stage, customer, len(styles.WORDS))


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_runtime_cannot_honour_is_refused_by_name(
    stream: bool, served: styles.Style, stage: Stage, customer: Customer
) -> None:
    seen = await ask(stage, customer, served, CHAT, stream=stream, grammar="root ::= [a-z]")
    assert seen.status == 400, seen.payloads
    assert seen.error is not None
    assert (seen.error["type"], seen.error["param"]) == ("invalid_request_error", "grammar")
    assert stage.product.settled(customer.account_id)["available"] == "10.000000000"


def test_a_model_whose_tensors_count_nothing_cannot_be_billed(stage: Stage) -> None:
    with ThreadedWorker(FakeWorker(["engine"], style="triton-openai", counts=False)) as worker:
        shown = stage.product.register(registration("triton-openai", worker.worker.url, "uncounted"))
        stage.product.command("workers", "remove", "style-uncounted")
    assert shown["status"] == "misconfigured"
    assert "reports no usage" in str(shown)


def test_a_model_that_the_server_lacks_is_named(stage: Stage) -> None:
    with ThreadedWorker(FakeWorker(["engine", "other"], style="triton-openai")) as worker:
        wrong = registration("triton-openai", worker.worker.url, "lacking", model_map={"acme/lacking": "motor"})
        shown = stage.product.register(wrong)
        stage.product.command("workers", "remove", "style-lacking")
    assert shown["status"] == "misconfigured"
    assert "'motor'" in str(shown)
