"""The unmodified `openai` SDK for Python, sync and async, against real servers on both transports."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.sdk.charged import assert_charged
from tests.sdk.conftest import Real

MESSAGES: list[Any] = [{"role": "user", "content": "Name the capital of France."}]


@pytest.fixture
def account(real: Real) -> tuple[str, str]:
    return real.customer()


@pytest.fixture
def client(real: Real, account: tuple[str, str]) -> Iterator[OpenAI]:
    with OpenAI(base_url=real.product.base_url, api_key=account[1], max_retries=0, timeout=100) as made:
        yield made


@pytest.fixture
async def async_client(real: Real, account: tuple[str, str]) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=real.product.base_url, api_key=account[1], max_retries=0, timeout=100) as made:
        yield made


def test_a_chat(transport: str, real: Real, account: tuple[str, str], client: OpenAI) -> None:
    model = real.model(transport)
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=16, temperature=0)
    assert answer.model == model
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert_charged(real.product, account[0], answer.usage.model_dump())


def test_a_streamed_chat(transport: str, real: Real, account: tuple[str, str], client: OpenAI) -> None:
    model = real.model(transport)
    with client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    assert {chunk.model for chunk in chunks} == {model}
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1, "it did not stream"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1] if chunk.usage] == []
    assert chunks[-1].usage is not None
    assert_charged(real.product, account[0], chunks[-1].usage.model_dump())


def test_the_common_loop_that_reads_the_first_choice_of_every_chunk(transport: str, real: Real, client: OpenAI) -> None:
    text = ""
    with client.chat.completions.create(
        model=real.model(transport), messages=MESSAGES, max_tokens=16, temperature=0, stream=True
    ) as stream:
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert "Paris" in text


def test_a_completion(transport: str, real: Real, account: tuple[str, str], client: OpenAI) -> None:
    model = real.model(transport)
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in answer.choices[0].text
    assert answer.usage is not None
    with client.completions.create(
        model=model, prompt="The capital of France is", max_tokens=8, temperature=0, stream=True
    ) as stream:
        chunks = list(stream)
    assert "Paris" in "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert chunks[-1].usage is not None
    assert_charged(real.product, account[0], answer.usage.model_dump(), chunks[-1].usage.model_dump())


def test_a_limit_is_kept_and_said(transport: str, real: Real, client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=real.model(transport),
        messages=[{"role": "user", "content": "Tell me a long story."}],
        max_tokens=4,
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 4


async def test_async_a_chat_and_a_stream_at_once(
    transport: str, real: Real, account: tuple[str, str], async_client: AsyncOpenAI
) -> None:
    model = real.model(transport)
    answer = await async_client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=16, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    text, usage = "", None
    async with await async_client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=16,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        async for chunk in stream:
            assert usage is None, "something came after the usage frame"
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            usage = chunk.usage
    assert "Paris" in text
    assert usage is not None
    assert_charged(real.product, account[0], answer.usage.model_dump(), usage.model_dump())


def test_the_shared_model_is_served_by_either(real: Real, account: tuple[str, str], client: OpenAI) -> None:
    answers = [
        client.chat.completions.create(model="acme/model-1", messages=MESSAGES, max_tokens=8, temperature=0)
        for _ in range(4)
    ]
    assert all("Paris" in (answer.choices[0].message.content or "") for answer in answers)
    assert {answer.model for answer in answers} == {"acme/model-1"}
    assert_charged(real.product, account[0], *(answer.usage.model_dump() for answer in answers if answer.usage))


def test_models_are_listed_and_found_by_their_slashed_name(real: Real, client: OpenAI) -> None:
    real.model("openai")
    listed = [model.id for model in client.models.list()]
    assert "real/llama" in listed
    assert "acme/model-1" in listed
    assert client.models.retrieve("real/llama").id == "real/llama"


def test_errors_are_the_sdks_own(real: Real, client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as not_found:
        client.chat.completions.create(model="acme/none", messages=MESSAGES)
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="real/llama", messages=MESSAGES, max_tokens=0)
    assert bad.value.param == "max_tokens"
    with (
        OpenAI(base_url=real.product.base_url, api_key="sk-wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.chat.completions.create(model="real/llama", messages=MESSAGES)


def test_more_than_one_choice_is_refused_by_name_where_it_cannot_be_metered(
    transport: str, real: Real, account: tuple[str, str], client: OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=real.model(transport), messages=MESSAGES, n=2, max_tokens=4)
    assert refused.value.param == "n"
    assert_charged(real.product, account[0])
