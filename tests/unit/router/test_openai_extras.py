"""Which fields a worker gets of those that are not every runtime's: the extras, and what strict request models forbid."""

import pytest
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_REJECTED

from services.router.transport import openai_extras, openai_fields
from services.router.transport.port import WorkerFailure

MILD = {
    "bad_words", "chat_template_kwargs", "documents", "dry_base", "early_stopping", "instruction", "min_tokens", "mirostat",
    "normalize", "separate_reasoning", "top_k", "top_p_min",
}  # fmt: skip
STRONG = {"ebnf", "grammar", "guided_json", "json_schema", "regex", "structured_outputs"}


def fate(operation: Operation.ValueType, name: str, runtime: str) -> str:
    """What becomes of a field: it `passes`, the client is `told`, or it is `refused`."""
    try:
        passing, ignored = openai_fields.choose(operation, [(name, b'{"a":1}')], runtime, False)
    except WorkerFailure:
        return "refused"
    return "passes" if passing and not ignored else "told" if ignored == (name,) else "lost"


@pytest.mark.parametrize(
    ("runtime", "operation", "passing"),
    [
        (
            "tensorrt-llm",
            OPERATION_CHAT_COMPLETION,
            "top_k min_tokens top_p_min early_stopping chat_template_kwargs documents",
        ),
        ("tensorrt-llm", OPERATION_COMPLETION, "top_k min_tokens top_p_min early_stopping"),
        ("tensorrt-llm", OPERATION_EMBEDDING, ""),
        ("triton", OPERATION_CHAT_COMPLETION, "min_tokens"),
        ("triton", OPERATION_EMBEDDING, ""),
        (
            "vllm",
            OPERATION_CHAT_COMPLETION,
            "top_k min_tokens guided_json structured_outputs bad_words chat_template_kwargs documents",
        ),
        ("vllm", OPERATION_COMPLETION, "top_k min_tokens guided_json structured_outputs bad_words"),
        ("vllm", OPERATION_EMBEDDING, "normalize"),
        ("sglang", OPERATION_CHAT_COMPLETION, "top_k min_tokens ebnf regex separate_reasoning chat_template_kwargs"),
        ("sglang", OPERATION_COMPLETION, "top_k min_tokens ebnf regex json_schema"),
        ("llama.cpp", OPERATION_CHAT_COMPLETION, "top_k grammar json_schema dry_base mirostat chat_template_kwargs"),
        ("llama.cpp", OPERATION_COMPLETION, "top_k grammar json_schema dry_base mirostat"),
        ("llama.cpp", OPERATION_EMBEDDING, ""),
        (
            "openai-compatible",
            OPERATION_CHAT_COMPLETION,
            "top_k top_p_min early_stopping chat_template_kwargs documents min_tokens guided_json structured_outputs"
            " bad_words ebnf regex separate_reasoning json_schema grammar dry_base mirostat",
        ),
        ("openai-compatible", OPERATION_EMBEDDING, "normalize instruction"),
    ],
)
def test_each_runtime_gets_its_own_extras(runtime: str, operation: Operation.ValueType, passing: str) -> None:
    """Of all these names: what passes, what is left out and told, and what is refused since it cannot be left out."""
    fates = {name: fate(operation, name, runtime) for name in MILD | STRONG}
    expected = set(passing.split())
    assert {name for name, each in fates.items() if each == "passes"} == expected
    refused = set() if operation == OPERATION_EMBEDDING else STRONG - expected
    assert {name for name, each in fates.items() if each == "refused"} == refused


def test_a_refusal_is_the_clients_to_know_and_nobodys_fault() -> None:
    with pytest.raises(WorkerFailure) as caught:
        openai_fields.choose(OPERATION_CHAT_COMPLETION, [("guided_json", b"{}")], "tensorrt-llm", False)
    failure = caught.value
    assert (failure.reason, failure.http_status, failure.param) == (FAILURE_REASON_REJECTED, 400, "guided_json")
    assert failure.message == "'guided_json' is not supported by the runtime of this model's worker (tensorrt-llm)"
    assert not failure.try_another
    assert not failure.counts_against_worker


STRICT = ["tensorrt-llm", "triton"]


@pytest.mark.parametrize("runtime", STRICT)
def test_hints_of_openais_platform_are_left_out_for_strict_runtimes(runtime: str) -> None:
    names = ["metadata", "modalities", "prediction", "store", "verbosity"]
    members = [(name, b'{"a":1}') for name in names]
    assert openai_fields.choose(OPERATION_CHAT_COMPLETION, members, runtime, False) == ([], tuple(names))
    assert openai_fields.choose(OPERATION_CHAT_COMPLETION, members, runtime, True) == (members, ())
    assert openai_fields.choose(OPERATION_CHAT_COMPLETION, members, "vllm", False) == (members, ())


@pytest.mark.parametrize(
    ("name", "runtime", "refused"),
    [
        ("functions", "tensorrt-llm", True),
        ("functions", "triton", False),
        ("audio", "triton", True),
        ("web_search_options", "tensorrt-llm", True),
        ("guided_json", "sglang", True),
        ("grammar", "vllm", True),
    ],
)
def test_what_an_answer_cannot_do_without_is_refused(name: str, runtime: str, refused: bool) -> None:
    members = [("temperature", b"1"), (name, b'{"a":1}')]
    if refused:
        with pytest.raises(WorkerFailure, match=name):
            openai_fields.choose(OPERATION_CHAT_COMPLETION, members, runtime, False)
        # It says nothing, or its operator says that the worker takes it, or the operation has no such field at all.
        assert openai_fields.choose(OPERATION_CHAT_COMPLETION, [(name, b"[]")], runtime, False) == ([], (name,))
        assert openai_fields.choose(OPERATION_CHAT_COMPLETION, members, runtime, True) == (members, ())
        assert openai_fields.choose(OPERATION_EMBEDDING, [(name, b"1")], runtime, False) == ([], (name,))
    else:
        assert openai_fields.choose(OPERATION_CHAT_COMPLETION, members, runtime, False) == (members, ())


def test_no_runtimes_extra_is_forbidden() -> None:
    """A name on both lists would never pass, and the table would say otherwise."""
    for operation in (OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING):
        names = sorted(openai_extras.ANYBODYS.of(operation))
        passing, ignored = openai_fields.choose(
            operation, [(name, b"{}") for name in names], "openai-compatible", False
        )
        assert ([name for name, _ in passing], ignored) == (names, ())
