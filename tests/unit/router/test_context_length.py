"""Which refusals are about the context's length, by both transports' errors."""

import json

import pytest
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_UPSTREAM

from services.router.transport import openai_errors, triton_errors
from services.router.transport.port import CONTEXT_LENGTH


@pytest.mark.parametrize(
    ("message", "is_about_length"),
    [
        ("This model's maximum context length is 4096 tokens.", True),
        ("the request exceeds the available context size. try increasing the context size", True),
        ("default_max_tokens (-3) should be greater than 0: prompt length 9 exceeds max_seq_len 8", True),
        ("The sum of prompt length (60.0) and max_tokens (50) should not exceed max_num_tokens (100)", True),
        ("Input length 900 exceeds the maximum allowed length 800", True),
        ("The input (9000 tokens) is longer than the model takes", True),
        ("Requested token count exceeds the model's maximum context length of 4096 tokens.", True),
        ("Prompt length (5000) exceeds maximum input length (4096).", True),
        ("prompt length 9 exceeds max_input_len 8", True),
        ("the number of tokens (9000) is larger than the limit (4096)", True),
        ("prompt and answer do not fit the context window", True),
        ("the context window of 4096 tokens is full", True),
        ("the input parameter top_k is too large", False),
        ("tool schema: input sequence of enum values is too long", False),
        ("input image is too large", False),
        ("the input image exceeds the maximum size", False),
        ("max_tokens exceeds max_num_tokens", False),
        ("the tool's description exceeds the maximum length", False),
        ("temperature must be positive", False),
        ("unknown field max_tokens", False),
    ],
)
def test_refusals_about_the_contexts_length_are_known(message: str, is_about_length: bool) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    codes = {openai_errors.from_status(400, body).code, triton_errors.refused("INVALID_ARGUMENT", message).code}
    assert codes == {CONTEXT_LENGTH if is_about_length else ""}


@pytest.mark.parametrize("text", ["failed to allocate the context window", "no context size is known to the engine"])
def test_a_context_that_broke_is_no_refusal(text: str) -> None:
    assert triton_errors.refused("INTERNAL", text).reason == FAILURE_REASON_UPSTREAM
