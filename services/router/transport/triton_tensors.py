"""Values into tensors and tensors into values, for both of Triton's protocols. Pure; imported by the Triton transport.

A BYTES tensor travels as elements, each a little-endian 32-bit length and the bytes; numbers little-endian and packed.
Output shapes are never relied on: stock models flatten where their metadata says otherwise. So an output is its elements.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.router.transport.triton_errors import invalid_response, rejected
from services.router.transport.triton_model import FLOATS, INTEGERS, Tensor
from services.router.transport.triton_params import Scalar

# Elements of one output that are looked at: one text, one count. More is no answer to one request.
MAX_ELEMENTS = 65_536

_FORMATS = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
    "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
_LARGEST = {"FP16": 65504.0, "FP32": 3.4028234663852886e38, "FP64": math.inf}

# Output name -> its elements, flat. Text is bytes, numbers are numbers.
Outputs = Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A named input with its values, all of the type that the model declares."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Scalar, ...]

    def raw(self) -> bytes:
        """As gRPC's `raw_input_contents` has it."""
        if self.datatype == "BYTES":
            texts = [str(value).encode() for value in self.values]
            return b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return struct.pack(f"<{len(self.values)}{_FORMATS[self.datatype]}", *self.values)

    def json(self) -> dict[str, Any]:
        """As an input of HTTP `infer` has it."""
        return {"name": self.name, "shape": self.shape, "datatype": self.datatype, "data": self.values}


def fit(tensor: Tensor, values: Sequence[Scalar], field: str) -> InputTensor | None:
    """The values as the tensor's declared type. None if the tensor does not take that many; WorkerFailure (400, naming the
    client's field) if one is of another type or out of the type's range."""
    shape = tensor.shape(len(values))
    if shape is None:
        return None
    return InputTensor(
        tensor.name, tensor.datatype, shape, tuple(_fit(tensor.datatype, value, field) for value in values)
    )


def _fit(datatype: str, value: Scalar, field: str) -> Scalar:
    if datatype == "BYTES":
        if not isinstance(value, str):
            raise rejected(f"'{field}' must be a string", param=field)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise rejected(f"'{field}' holds half of a surrogate pair", param=field) from None
        return value
    if datatype == "BOOL":
        if not isinstance(value, bool):
            raise rejected(f"'{field}' must be true or false", param=field)
        return value
    if isinstance(value, (bool, str)):
        raise rejected(f"'{field}' must be a number", param=field)
    if datatype in FLOATS:
        if not abs(value) <= _LARGEST[datatype]:
            bound = _LARGEST[datatype]
            raise rejected(f"'{field}' must be between {-bound:g} and {bound:g}", param=field)
        return float(value)
    if not isinstance(value, int):
        raise rejected(f"'{field}' must be an integer", param=field)
    low, high = _bounds(datatype)
    if not low <= value <= high:
        raise rejected(f"'{field}' must be between {low} and {high}", param=field)
    return value


def _bounds(datatype: str) -> tuple[int, int]:
    bits = int(datatype.lstrip("UINT"))
    return (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def unpack(datatype: str, raw: bytes) -> list[Any]:
    """The elements of one entry of `raw_output_contents`."""
    if datatype == "BYTES":
        return _unframe(raw)
    code = _FORMATS.get(datatype)
    if code is None:
        # Nothing of ours has such a type (BF16 logits); nobody looks at it.
        return []
    size = struct.calcsize(f"<{code}")
    if len(raw) % size or len(raw) // size > MAX_ELEMENTS:
        raise invalid_response(f"{len(raw)} bytes are no tensor of {datatype}")
    return list(struct.unpack(f"<{len(raw) // size}{code}", raw))


def _unframe(raw: bytes) -> list[bytes]:
    elements: list[bytes] = []
    at = 0
    while at < len(raw):
        end = at + 4
        if end <= len(raw):
            at, end = end, end + int(struct.unpack_from("<I", raw, at)[0])
        if end > len(raw) or len(elements) >= MAX_ELEMENTS:
            raise invalid_response("a BYTES tensor is cut off")
        elements.append(raw[at:end])
        at = end
    return elements


def from_infer(answer: Any) -> Outputs:
    """The outputs of an HTTP `infer` answer."""
    listed = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        raise invalid_response("an infer answer without outputs")
    outputs: dict[str, list[Any]] = {}
    for entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            outputs[entry["name"]] = _flat(entry.get("data"))
    return outputs


def from_generate(frame: Any, datatypes: Mapping[str, str]) -> Outputs:
    """The outputs in one event of HTTP `generate_stream`: flat fields, one-element tensors as scalars. `datatypes` are
    the declared ones of the names that are wanted; some models turn whole numbers into text on this path."""
    if not isinstance(frame, dict):
        raise invalid_response("an event that is no JSON object")
    outputs: dict[str, list[Any]] = {}
    for name, datatype in datatypes.items():
        if name not in frame:
            continue
        values = _flat(frame[name])
        if datatype in INTEGERS:
            values = [int(v) if isinstance(v, bytes) and v.isdigit() and len(v) < 20 else v for v in values]
        outputs[name] = values
    return outputs


def _flat(value: Any) -> list[Any]:
    flat: list[Any] = []
    # No recursion: JSON may be nested deeper than Python's stack. The next in order is the last of the list.
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest += reversed(item)
        else:
            flat.append(_bytes_of(item) if isinstance(item, str) else item)
            if len(flat) > MAX_ELEMENTS:
                raise invalid_response("an output with too many elements")
    return flat


def _bytes_of(text: str) -> bytes:
    try:
        # Bytes that are no UTF-8 were read as surrogates (triton_http.py).
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise invalid_response("a text with half of a surrogate pair") from None
