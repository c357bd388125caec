"""What Triton's refusals mean, and that nothing of the inside gets out."""

import pytest
from speedinfer.router.v1 import frame_pb2

from services.router.safe_text import SafeText
from services.router.transport.triton_errors import HTTP_CODES, clean, refused, unreachable

REJECTED = frame_pb2.FAILURE_REASON_REJECTED
UPSTREAM = frame_pb2.FAILURE_REASON_UPSTREAM
OVERLOADED = frame_pb2.FAILURE_REASON_OVERLOADED

BLS = (
    "Failed to generate: Traceback (most recent call last):\n"
    '  File "/models/tensorrt_llm_bls/1/model.py", line 108, in execute\n    for res in self.decoder.decode(req)\n'
    "ValueError: the secret prompt\n"
)
PYBIND = (
    "Failed to process the request(s) for model instance 'm_0_0', message: ValueError: bad\n\nAt:\n"
    "  /models/m/1/model.py(12): execute\n"
)


@pytest.mark.parametrize(
    ("code", "text", "reason", "try_another", "counts"),
    [
        ("INVALID_ARGUMENT", "max_tokens must be at least 1, got 0", REJECTED, False, False),
        ("INVALID_ARGUMENT", "unexpected inference input 'foo' for model 'm'", UPSTREAM, True, True),
        (
            "INVALID_ARGUMENT",
            "[request id: x] expected number of inputs between 2 and 3 but got 1",
            UPSTREAM,
            True,
            True,
        ),
        ("INVALID_ARGUMENT", BLS, REJECTED, False, False),
        ("UNAVAILABLE", "Exceeds maximum queue size", OVERLOADED, True, False),
        ("NOT_FOUND", "Request for unknown model: 'm' is not found", UPSTREAM, True, True),
        (
            "UNIMPLEMENTED",
            "ModelInfer RPC doesn't support models with decoupled transaction policy",
            UPSTREAM,
            True,
            True,
        ),
        ("UNAUTHENTICATED", "no", UPSTREAM, True, True),
        ("PERMISSION_DENIED", "This protocol is restricted", UPSTREAM, True, True),
        ("INTERNAL", PYBIND, UPSTREAM, True, True),
        ("CANCELLED", "", UPSTREAM, True, True),
        ("INTERNAL", "Prompt length (5000) exceeds maximum input length (4096)", REJECTED, False, False),
        # Inside a stream there is no code.
        ("", "all slots and the queue are full", OVERLOADED, True, False),
        ("", "max_tokens must be at least 1, got 0", REJECTED, False, False),
        ("", "Request for unknown model: 'm' is not found", UPSTREAM, True, True),
        ("", "unexpected shape for input 'text_input' for model 'm'. Expected [-1,1], got [1]", UPSTREAM, True, True),
        ("", "Streaming is only supported in decoupled mode.", UPSTREAM, True, True),
        ("", "Executor failed process requestId 7 due to the following error: must be 4", UPSTREAM, True, True),
        ("", BLS, UPSTREAM, True, True),
        ("", "Too many requests", OVERLOADED, True, False),
        ("", "request queue is full; max_queue_size must be larger", OVERLOADED, True, False),
        ("", "KV cache is too small for this batch", UPSTREAM, True, True),
        ("", "a valid license is required", UPSTREAM, True, True),
    ],
)
def test_refusals(code: str, text: str, reason: int, try_another: bool, counts: bool) -> None:
    failure = refused(code, text)
    assert (failure.reason, failure.try_another, failure.counts_against_worker) == (reason, try_another, counts)
    for inner in ("Traceback", "model.py", "secret", "/models", "File"):
        assert inner not in failure.message
        assert inner not in failure.for_operators


def test_a_request_that_is_too_long_says_so_by_its_code() -> None:
    failure = refused("INVALID_ARGUMENT", "prompt length 9 exceeds max_input_len 8")
    assert (failure.code, failure.http_status) == ("context_length_exceeded", 400)
    assert failure.message == "prompt length 9 exceeds max_input_len 8"


def test_a_request_larger_than_a_message_is_413() -> None:
    assert refused("RESOURCE_EXHAUSTED", "Received message larger than max (5 vs. 4)").http_status == 413
    assert refused(HTTP_CODES[413], "").http_status == 413


def test_a_lost_connection_is_told_apart() -> None:
    assert unreachable("x").connection_lost


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (BLS, "Failed to generate"),
        (PYBIND, "Failed to process the request(s) for model instance 'm_0_0', message: ValueError: bad"),
        ("cannot reach http://10.0.0.7:8001/v2 or 10.0.0.8:9", "cannot reach *** or ***"),
        ("no file /opt/models/engine/rank0.engine here", "no file *** here"),
        ("with Bearer abc.def and sk-1234567890", "with *** and ***"),
        ("[request id: r1.1] top_p must be positive", "top_p must be positive"),
        ('  File "/a/b.py", line 3, in f', ""),
        ("a ratio of 1/2 and input/output", "a ratio of 1/2 and input/output"),
    ],
)
def test_clean(text: str, left: str) -> None:
    assert clean(text) == left


def test_what_the_registration_holds_is_not_told() -> None:
    failure = refused("INVALID_ARGUMENT", "key k-e-y-1 at triton:8000 is invalid", SafeText(["k-e-y-1", "triton:8000"]))
    assert failure.message == "key *** at *** is invalid"
    assert failure.for_operators == "INVALID_ARGUMENT: key *** at *** is invalid"


def test_what_the_worker_said_is_kept_apart_from_what_is_logged() -> None:
    failure = refused("INTERNAL", "cannot work on 'the whole prompt'")
    assert failure.detail == "INTERNAL"
    assert failure.said == "cannot work on 'the whole prompt'"


def test_clean_is_bounded() -> None:
    assert len(clean("x" * 100_000)) == 500
