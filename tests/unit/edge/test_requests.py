"""Bodies of the three operations: what is refused, by name, and what becomes of the rest."""

from typing import Any

import orjson
import pytest
from speedinfer.router.v1.fleet_pb2 import Feature

from services.edge import chat_request, completion_request, embedding_request, json_object
from services.edge.openai_errors import Refused
from services.edge.openai_request import Bounds, InferenceRequest, UsageWish

CHECKS = {"chat": chat_request.check, "completion": completion_request.check, "embedding": embedding_request.check}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "completion": {"model": "m", "prompt": "hi"},
    "embedding": {"model": "m", "input": "hi"},
}


def check(kind: str, **changes: Any) -> InferenceRequest:
    return check_text(kind, orjson.dumps(BODIES[kind] | changes))


def check_text(kind: str, text: bytes) -> InferenceRequest:
    return CHECKS[kind](*json_object.parse(text, 64), Bounds(max_messages=3, max_inputs=3))


def refused(kind: str, **changes: Any) -> str | None:
    with pytest.raises(Refused) as caught:
        check(kind, **changes)
    problem = caught.value.problem
    assert (problem.status, problem.type) == (400, "invalid_request_error")
    return problem.param


USER = {"role": "user", "content": "hi"}
WRONG_EVERYWHERE: list[tuple[str, Any]] = [
    ("model", None),
    ("model", ""),
    ("model", 1),
    ("model", "x" * 257),
    ("user", 1),
]
WRONG_IN_GENERATION: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.0),
    ("max_tokens", "5"),
    ("max_tokens", True),
    ("max_tokens", 2**31),
    ("max_completion_tokens", 0),
    ("n", 0),
    ("n", 129),
    ("n", "2"),
    ("best_of", 0),
    ("stream", "yes"),
    ("stream_options", []),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "hot"),
    ("temperature", True),
    ("top_p", 1.01),
    ("presence_penalty", 3),
    ("frequency_penalty", -3),
    ("stop", 1),
    ("stop", ["a", 1]),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", ["a"] * 65),
    ("stop", {}),
    ("seed", 1.5),
    ("logit_bias", []),
    ("response_format", "json"),
    ("chat_template", "{{ 1 }}"),
    ("chat_template_kwargs", "x"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_EVERYWHERE)
@pytest.mark.parametrize("kind", list(CHECKS))
def test_wrong_members_are_named(kind: str, name: str, value: Any) -> None:
    assert refused(kind, **{name: value}) == name


@pytest.mark.parametrize(("name", "value"), WRONG_IN_GENERATION)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_wrong_members_of_generation_are_named(kind: str, name: str, value: Any) -> None:
    assert refused(kind, **{name: value}) == name


@pytest.mark.parametrize(
    ("written", "fits"),
    [
        (str(-(2**63)), True), (str(2**63), True), (str(2**64 - 1), True),
        (str(2**64), False), (str(-(2**63) - 1), False), ("1" + "0" * 300, False), ("1.5", False), ("7.0", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_seed_of_64_bits_goes_on_as_written_and_a_longer_one_is_told_the_bounds(
    kind: str, written: str, fits: bool
) -> None:
    text = orjson.dumps(BODIES[kind])[:-1] + f',"seed":{written}}}'.encode()
    if fits:
        assert ("seed", written.encode()) in check_text(kind, text).members
        return
    with pytest.raises(Refused) as caught:
        check_text(kind, text)
    problem = caught.value.problem
    assert (problem.status, problem.param) == (400, "seed")
    said = "must be an integer" if "." in written else "from -9223372036854775808 to 18446744073709551615"
    assert said in problem.message


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        ([USER] * 4, "messages"),
        (["hi"], "messages[0]"),
        ([USER, {"content": "hi"}], "messages[1].role"),
        ([{"role": 1}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [5]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": 1}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}],
            "messages[0].content[0].image_url",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x", "image_url": "file:///etc/passwd"}]}],
            "messages[0].content[0].image_url",
        ),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "data:"}}]}],
            "messages[0].content[0].type",
        ),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "messages[0].content[0].type"),
        (
            [{"role": "user", "content": [{"type": "document_url", "document_url": "http://x"}]}],
            "messages[0].content[0].type",
        ),
        ([{"role": "user", "content": [{"image_urls": ["http://x"]}]}], "messages[0].content[0].image_urls"),
        ([{"role": "user", "content": [{"video_embeds": "x"}]}], "messages[0].content[0].video_embeds"),
        (
            [{"role": "user", "content": [{"type": "text", "text": {"image_url": "http://x"}}]}],
            "messages[0].content[0].text",
        ),
        ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "x", "images": ["http://169.254.169.254/"]}], "messages[0].images"),
    ],
)
def test_wrong_messages_are_named(messages: Any, param: str) -> None:
    assert refused("chat", messages=messages) == param


@pytest.mark.parametrize(
    "changes", [{"tools": {}}, {"tools": ["x"]}, {"tool_choice": 1}, {"logprobs": 1}, {"top_logprobs": -1}]
)
def test_wrong_members_of_chat(changes: dict[str, Any]) -> None:
    param = refused("chat", **changes)
    assert param is not None
    assert param.startswith(next(iter(changes)))


@pytest.mark.parametrize("prompt", [None, [], ["a", "b"], [1, "a"], [[1], [2]], [[]], [-1], [1.5], [True], {}, 5])
def test_wrong_prompts(prompt: Any) -> None:
    assert refused("completion", prompt=prompt) == "prompt"


@pytest.mark.parametrize("value", [None, "", [], [""], ["a", 1], [[]], [[1], "a"], [-1], ["a"] * 4, {}, 5])
def test_wrong_inputs(value: Any) -> None:
    assert refused("embedding", input=value) == "input"


@pytest.mark.parametrize(
    ("changes", "param"),
    [({"stream": True}, "stream"), ({"encoding_format": "hex"}, "encoding_format"), ({"dimensions": 0}, "dimensions")],
)
def test_wrong_members_of_embeddings(changes: dict[str, Any], param: str) -> None:
    assert refused("embedding", **changes) == param


@pytest.mark.parametrize(
    ("prompt", "text_bytes", "token_ids"),
    [("hé", 3, 0), (["hé"], 3, 0), ([1, 2, 3], 0, 3), ([[1, 2]], 0, 2), ("", 0, 0)],
)
def test_forms_of_prompts(prompt: Any, text_bytes: int, token_ids: int) -> None:
    size = check("completion", prompt=prompt).prompt
    assert (size.text_bytes, size.token_ids, size.messages) == (text_bytes, token_ids, 0)


@pytest.mark.parametrize(
    ("value", "text_bytes", "inputs", "token_ids"),
    [("ab", 2, 1, 0), (["ab", "c"], 3, 2, 0), ([1, 2, 3], 0, 1, 3), ([[1], [2, 3]], 0, 2, 3)],
)
def test_forms_of_inputs(value: Any, text_bytes: int, inputs: int, token_ids: int) -> None:
    size = check("embedding", input=value).prompt
    assert (size.text_bytes, size.inputs, size.token_ids) == (text_bytes, inputs, token_ids)


def test_the_body_goes_on_as_it_was_written() -> None:
    text = (
        b'{"model":"m", "messages":[ {"role":"user","content":"\\u0068i"} ],"temperature":1.0e0,"stream":true,'
        b'"max_tokens":5,"max_completion_tokens":7,"n":null,"top_k":40,"stream_options":{"include_usage":true},'
        b'"odd":{"b":1, "a":2}}'
    )
    request = check_text("chat", text)
    assert request.members == (
        ("messages", b'[ {"role":"user","content":"\\u0068i"} ]'),
        ("temperature", b"1.0e0"),
        ("top_k", b"40"),
        ("odd", b'{"b":1, "a":2}'),
    )
    assert (request.stream, request.usage_wish) == (True, UsageWish.WANTED)
    # Both names of the limit: the smaller.
    assert request.output_limit == 5


@pytest.mark.parametrize(
    ("changes", "wish"),
    [
        ({"stream": True}, UsageWish.NOT_SAID),
        ({"stream": True, "stream_options": {}}, UsageWish.NOT_SAID),
        ({"stream": True, "stream_options": {"include_usage": False}}, UsageWish.NOT_WANTED),
        ({"stream_options": {"include_usage": True}}, UsageWish.NOT_SAID),
    ],
)
def test_wishes_of_usage(changes: dict[str, Any], wish: UsageWish) -> None:
    assert check("chat", **changes).usage_wish is wish


def test_sequences_are_the_widest() -> None:
    assert (check("chat", n=3).choices, check("chat", n=3).sequences) == (3, 3)
    request = check("completion", n=2, best_of=4)
    assert (request.choices, request.sequences) == (2, 4)
    assert refused("chat", beam_width=5) == "beam_width"
    assert check("chat", beam_width=1).sequences == 1
    assert refused("completion", n=3, best_of=2) == "best_of"


DATA_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}


@pytest.mark.parametrize(
    ("kind", "changes", "needs"),
    [
        ("chat", {}, []),
        (
            "chat",
            {"n": 1, "logprobs": False, "tools": [], "response_format": {"type": "text"}, "tool_choice": "auto"},
            [],
        ),
        ("chat", {"n": 2}, [("CHOICES", "n")]),
        ("chat", {"tools": [{"type": "function"}]}, [("TOOLS", "tools")]),
        ("chat", {"tool_choice": "required"}, [("TOOLS", "tool_choice")]),
        ("chat", {"logprobs": True, "top_logprobs": 2}, [("LOGPROBS", "logprobs"), ("LOGPROBS", "top_logprobs")]),
        ("chat", {"response_format": {"type": "json_object"}}, [("STRUCTURED_OUTPUT", "response_format")]),
        ("chat", {"guided_json": {}}, [("STRUCTURED_OUTPUT", "guided_json")]),
        ("chat", {"grammar": "x", "regex": None}, [("STRUCTURED_OUTPUT", "grammar")]),
        ("completion", {"ebnf": "x", "regex": "y"}, [("STRUCTURED_OUTPUT", "ebnf"), ("STRUCTURED_OUTPUT", "regex")]),
        ("completion", {"json_schema": {}}, [("STRUCTURED_OUTPUT", "json_schema")]),
        ("chat", {"logit_bias": {"1": 1}}, [("LOGIT_BIAS", "logit_bias")]),
        ("chat", {"messages": [{"role": "user", "content": [DATA_IMAGE]}]}, [("IMAGES", "messages[0].content[0]")]),
        ("completion", {"prompt": [1]}, [("TOKEN_IDS", "prompt")]),
        ("completion", {"logprobs": 0}, [("LOGPROBS", "logprobs")]),
        ("completion", {"echo": True, "suffix": "x"}, [("ECHO", "echo"), ("SUFFIX", "suffix")]),
        ("completion", {"best_of": 2}, [("CHOICES", "best_of")]),
        ("embedding", {"input": [1]}, [("TOKEN_IDS", "input")]),
    ],
)
def test_needs_name_the_member(kind: str, changes: dict[str, Any], needs: list[tuple[str, str]]) -> None:
    found = [(Feature.Name(need.feature).removeprefix("FEATURE_"), need.param) for need in check(kind, **changes).needs]
    assert found[0] == (kind.upper(), "")
    assert found[1:] == needs


def test_numbers_that_a_template_may_print_count() -> None:
    plain = check("chat").prompt.text_bytes
    assert check("chat", chat_template_kwargs={"n": list(range(1000, 2000))}).prompt.text_bytes >= plain + 4000
