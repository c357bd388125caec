"""Outputs in both forms that gRPC has for them."""

from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from services.router.transport.port import WorkerFailure
from services.router.transport.triton_grpc import outputs_of

pb: Any = service_pb2


def response(*datatypes: str) -> Any:
    made = pb.ModelInferResponse()
    for index, datatype in enumerate(datatypes):
        made.outputs.add(name=f"o{index}", datatype=datatype, shape=[1, 1])
    return made


def test_raw_contents() -> None:
    made = response("BYTES", "INT32")
    made.raw_output_contents.extend([b"\x02\0\0\0hi", b"\x07\0\0\0"])
    assert outputs_of(made) == {"o0": [b"hi"], "o1": [7]}


def test_typed_contents() -> None:
    made = response("BYTES", "INT32", "INT64", "UINT32", "INT32")
    made.outputs[0].contents.bytes_contents.append(b"hi")
    made.outputs[1].contents.int_contents.append(7)
    made.outputs[2].contents.int64_contents.append(8)
    made.outputs[3].contents.uint_contents.append(9)
    assert outputs_of(made) == {"o0": [b"hi"], "o1": [7], "o2": [8], "o3": [9], "o4": []}


def test_contents_that_do_not_match_the_outputs_are_invalid() -> None:
    made = response("BYTES", "INT32")
    made.raw_output_contents.append(b"\x02\0\0\0hi")
    with pytest.raises(WorkerFailure, match="cannot be read"):
        outputs_of(made)
