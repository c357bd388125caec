"""Values into tensors and back, byte by byte."""

import struct

import pytest

from services.router.transport.port import WorkerFailure
from services.router.transport.triton_model import Tensor
from services.router.transport.triton_tensors import InputTensor, fit, from_generate, from_infer, unpack


def tensor(datatype: str, dims: tuple[int, ...] = (1,), *, batched: bool = True) -> Tensor:
    return Tensor("t", datatype, dims, batched)


@pytest.mark.parametrize(
    ("datatype", "value", "raw"),
    [
        ("INT32", 7, b"\x07\0\0\0"),
        ("UINT64", 2**64 - 1, b"\xff" * 8),
        ("INT64", -1, b"\xff" * 8),
        ("BOOL", True, b"\x01"),
        ("FP32", 0.5, struct.pack("<f", 0.5)),
        ("FP16", 1.5, struct.pack("<e", 1.5)),
        ("FP64", 2, struct.pack("<d", 2.0)),
        ("BYTES", "é", b"\x02\0\0\0\xc3\xa9"),
    ],
)
def test_one_value_as_grpc_has_it(datatype: str, value: bool | float | str, raw: bytes) -> None:
    made = fit(tensor(datatype), (value,), "field")
    assert made is not None
    assert (made.shape, made.raw()) == ((1, 1), raw)


def test_a_list_of_words() -> None:
    made = fit(tensor("BYTES", (-1,)), ("a", "bc"), "stop")
    assert made == InputTensor("t", "BYTES", (1, 2), ("a", "bc"))
    assert made.raw() == b"\x01\0\0\0a\x02\0\0\0bc"
    assert made.json() == {"name": "t", "datatype": "BYTES", "shape": (1, 2), "data": ("a", "bc")}
    assert fit(tensor("BYTES"), ("a", "bc"), "stop") is None


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT32", 2**31), ("INT32", 1.0), ("INT32", True), ("UINT64", -1), ("UINT64", 2**64), ("FP32", 1e39),
        ("FP16", 70000), ("FP32", "1"), ("FP32", float("nan")), ("BOOL", 1), ("BYTES", 1), ("BYTES", "\ud800"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_the_clients_fault_by_name(datatype: str, value: bool | float | str) -> None:
    with pytest.raises(WorkerFailure) as caught:
        fit(tensor(datatype), (value,), "field")
    assert (caught.value.http_status, caught.value.param) == (400, "field")
    assert not caught.value.counts_against_worker


@pytest.mark.parametrize(
    ("datatype", "raw", "values"),
    [
        ("INT32", struct.pack("<ii", 3, -4), [3, -4]),
        ("BYTES", b"\x02\0\0\0ab\0\0\0\0", [b"ab", b""]),
        ("BYTES", b"\x03\0\0\0a\0\0", [b"a\0\0"]),
        ("BYTES", b"", []),
        ("BF16", b"\x00\x00", []),
    ],
)
def test_unpack(datatype: str, raw: bytes, values: list[object]) -> None:
    assert unpack(datatype, raw) == values


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [("INT32", b"\0\0\0"), ("BYTES", b"\x05\0\0\0ab"), ("BYTES", b"\x01\0"), ("BYTES", b"\xff\xff\xff\xff")],
)
def test_a_cut_tensor_is_an_invalid_response(datatype: str, raw: bytes) -> None:
    with pytest.raises(WorkerFailure, match="cannot be read"):
        unpack(datatype, raw)


def test_shapes_of_outputs_are_not_relied_on() -> None:
    answer = {
        "outputs": [
            {"name": "text_output", "datatype": "BYTES", "shape": [1, 1], "data": [["héllo"]]},
            {"name": "n", "datatype": "INT32", "shape": [1], "data": [4]},
        ]
    }
    assert from_infer(answer) == {"text_output": ["héllo".encode()], "n": [4]}


@pytest.mark.parametrize("answer", [None, [], {}, {"outputs": None}])
def test_an_answer_without_outputs_is_invalid(answer: object) -> None:
    with pytest.raises(WorkerFailure, match="cannot be read"):
        from_infer(answer)


def test_an_event_of_generate_stream() -> None:
    frame = {"model_name": "m", "text_output": "a", "n": "12", "m": 3, "other": [1, 2]}
    types = {"text_output": "BYTES", "n": "INT32", "m": "INT32", "absent": "INT32"}
    assert from_generate(frame, types) == {"text_output": [b"a"], "n": [12], "m": [3]}


def test_half_a_character_read_from_json_is_its_bytes_again() -> None:
    assert from_generate({"t": "a\udce9\udc82"}, {"t": "BYTES"}) == {"t": [b"a\xe9\x82"]}
    for broken in ("\ud83d", ["a", "\ud83d"]):
        with pytest.raises(WorkerFailure, match="cannot be read"):
            from_generate({"t": broken}, {"t": "BYTES"})
