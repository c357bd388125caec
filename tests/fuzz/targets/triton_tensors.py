"""Promise: tensors are read as Triton packs them, over both protocols, or are no answer (WorkerFailure); what goes out can be
read back; and counts that cannot be ones are never charged.
"""

import json
import struct
from typing import Any

from services.router.transport.port import WorkerFailure
from services.router.transport.triton_model import Tensor
from services.router.transport.triton_tensors import fit, from_generate, from_infer, unpack
from tests.fuzz.choices import Choices

INSTRUMENTED = ("services.router.transport.triton_tensors",)
_TYPES = ("BYTES", "INT32", "INT64", "UINT8", "UINT64", "FP32", "FP16", "FP64", "BOOL", "INT8", "BF16", "")
_CODES = {"INT8": "b", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT64": "Q", "BOOL": "?"}


def check(data: bytes) -> None:
    """The first byte is what is read: packed bytes, JSON of either route, or values that go out."""
    choices = Choices(data)
    kind = choices.below(4)
    if kind == 0:
        _check_packed(choices.pick(_TYPES), choices.rest())
    elif kind == 1:
        _check_fit(choices)
    else:
        _check_json(choices, nested=kind == 2)


def _check_packed(datatype: str, raw: bytes) -> None:
    try:
        elements = unpack(datatype, raw)
    except WorkerFailure:
        # Where a reading by the rules succeeds, a refusal is wrong.
        assert datatype not in _CODES or len(raw) % struct.calcsize(f"<{_CODES[datatype]}")
        assert datatype != "BYTES" or _frames(raw) is None
        return
    if datatype == "BYTES":
        assert elements == _frames(raw)
    elif datatype in _CODES:
        assert b"".join(struct.pack(f"<{_CODES[datatype]}", each) for each in elements) == _plain(datatype, raw)


def _plain(datatype: str, raw: bytes) -> bytes:
    # Any byte but zero is true.
    return bytes(map(bool, raw)) if datatype == "BOOL" else raw


def _frames(raw: bytes) -> list[bytes] | None:
    """Length and bytes, over and over; None if it does not end with the bytes."""
    elements: list[bytes] = []
    while raw:
        length = int.from_bytes(raw[:4], "little")
        if len(raw) < 4 + length:
            return None
        elements.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    return elements


def _check_fit(choices: Choices) -> None:
    datatype = choices.pick(_TYPES[:10])
    values = [choices.pick((choices.text(), choices.number(), "\ud83d", 2**31, -1)) for _ in range(choices.below(4))]
    if any(isinstance(value, (list, dict, type(None))) for value in values):
        return
    try:
        tensor = fit(Tensor("t", datatype, (-1,), True), values, "x")
    except WorkerFailure as error:
        tensor, failure = None, error
    else:
        failure = None
    assert failure is None or failure.http_status == 400
    if tensor is None:
        return
    read = unpack(datatype, tensor.raw())
    if datatype == "BYTES":
        assert read == [str(value).encode() for value in values]
    elif datatype in _CODES:
        assert read == values
    json.dumps(tensor.json(), allow_nan=False)


def _check_json(choices: Choices, *, nested: bool) -> None:
    deep: Any = choices.value()
    # JSON may be that deep, which is deeper than Python's own stack.
    for _ in range(choices.below(8) * choices.below(147)):
        deep = [deep]
    value = choices.pick(([7], 7, ["a"], "b", [[1], [[2]]], [None, True], deep, [choices.text()], "12", ["007"]))
    try:
        if nested:
            outputs = from_infer(
                choices.pick(({"outputs": [{"name": "t", "data": value}, choices.value()]}, choices.value()))
            )
        else:
            outputs = from_generate(choices.pick(({"t": value}, choices.value())), {"t": choices.pick(_TYPES[:10])})
    except WorkerFailure:
        return
    for elements in outputs.values():
        assert isinstance(elements, list)
        assert not any(isinstance(each, (list, str)) for each in elements), "text is bytes, and lists are flat"
