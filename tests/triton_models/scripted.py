"""The Triton side of the scripted models: one class, told by a `Wire` which tensors it speaks and how.

Each folder's 1/model.py picks a Wire; README.md lists them. Runs inside Triton's Python backend only.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from cancellations import record
from script import DEFAULT_LENGTH, Script

STREAMS = 64  # generated at once by one model
CANCEL_CHECK_S = 0.02
FAILURE = "scripted failure in the middle"


@dataclass(frozen=True)
class Wire:
    """Names are tensor names; None where the model does not have the tensor."""

    batched: bool = True  # max_batch_size > 0: every tensor has a leading batch dimension
    max_tokens: str = "max_tokens"
    stream: str | None = "stream"  # None: always streams
    exclude_input: str | None = "exclude_input_in_output"
    prompt_count: str | None = "num_input_tokens"
    completion_count: str | None = "num_output_tokens"
    prompt_count_flag: str | None = "return_num_input_tokens"  # None: counts are sent unasked
    completion_count_flag: str | None = "return_num_output_tokens"
    finish_reason: str | None = None
    cumulative_text: bool = False
    # How it behaves.
    decoupled: bool = True
    length: int = DEFAULT_LENGTH
    delay_ms: int = 0
    interval_ms: int = 0
    fail_after: int | None = None  # an error instead of the response with this index


class Cancelled(Exception):
    pass


class ScriptedModel:
    wire = Wire()

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.name = args["model_name"]
        self._input_names = [entry["name"] for entry in config["input"]]
        self._threads = ThreadPoolExecutor(max_workers=STREAMS)

    def execute(self, requests: list[Any]) -> list[Any] | None:
        asked = [(request, self._read(request)) for request in requests]
        if not self.wire.decoupled:
            return [self._whole_answer(inputs) for _, inputs in asked]
        for request, inputs in asked:
            sender = request.get_response_sender()
            self._threads.submit(self._stream, inputs, sender, request.request_id())
        return None

    def finalize(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _read(self, request: Any) -> dict[str, Any]:
        inputs = {}
        for name in self._input_names:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is not None and tensor.as_numpy().size:
                inputs[name] = tensor.as_numpy().flatten()[0]
        return inputs

    def _flag(self, inputs: dict[str, Any], name: str | None) -> bool:
        return name is None or bool(inputs.get(name, False))

    def _script(self, inputs: dict[str, Any]) -> Script:
        wire = self.wire
        return Script.of(
            inputs["text_input"].decode(),
            int(inputs.get(wire.max_tokens, DEFAULT_LENGTH)),
            length=wire.length,
            delay_ms=wire.delay_ms,
            interval_ms=wire.interval_ms,
        )

    def _whole_answer(self, inputs: dict[str, Any]) -> Any:
        if self.wire.stream is not None and inputs.get(self.wire.stream, False) and not self.wire.decoupled:
            return _error("Streaming is only supported in decoupled mode.", pb_utils.TritonError.INVALID_ARG)
        if self.wire.fail_after is not None:
            return _error(FAILURE, pb_utils.TritonError.INTERNAL)
        script = self._script(inputs)
        text, count = script.text(), script.length
        if self.wire.exclude_input and not inputs.get(self.wire.exclude_input, False):
            text, count = inputs["text_input"].decode() + text, count + script.prompt_tokens
        return self._response(inputs, script, text, count, last=True)

    def _stream(self, inputs: dict[str, Any], sender: Any, request_id: str) -> None:
        sent = 0
        try:
            script = self._script(inputs)
            _wait(script.delay_s, sender)
            if not self._flag(inputs, self.wire.stream):
                _wait(script.interval_s * script.length, sender)
                sender.send(self._whole_answer(inputs))
                return
            while sent < script.length:
                if sent == self.wire.fail_after:
                    sender.send(_error(FAILURE, pb_utils.TritonError.INTERNAL))
                    return
                _wait(script.interval_s if sent else 0, sender)
                text = script.text(sent + 1) if self.wire.cumulative_text else script.token(sent)
                sender.send(self._response(inputs, script, text, 1, last=sent + 1 == script.length))
                sent += 1
        except Cancelled:
            record(self.name, request_id, sent)
        except Exception as error:
            sender.send(_error(f"{self.name} is broken: {error!r}", pb_utils.TritonError.INTERNAL))
        finally:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _response(self, inputs: dict[str, Any], script: Script, text: str, count: int, *, last: bool) -> Any:
        wire = self.wire
        # One dimension also where the config declares a batch: NVIDIA's postprocessing model does the same.
        tensors = [_text("text_output", text)]
        shape = [1, 1] if wire.batched else [1]
        for name, flag, number in (
            (wire.prompt_count, wire.prompt_count_flag, script.prompt_tokens),
            (wire.completion_count, wire.completion_count_flag, count),
        ):
            if name is not None and self._flag(inputs, flag):
                tensors.append(pb_utils.Tensor(name, np.full(shape, number, dtype=np.int32)))
        if wire.finish_reason is not None and last and self._flag(inputs, "return_finish_reason"):
            limited = script.length == int(inputs.get(wire.max_tokens, DEFAULT_LENGTH))
            tensors.append(_text(wire.finish_reason, "length" if limited else "stop"))
        return pb_utils.InferenceResponse(tensors)


def _wait(seconds: float, sender: Any) -> None:
    """Raises Cancelled as soon as the client's cancel is seen, also when there is nothing to wait for."""
    until = time.monotonic() + seconds
    while True:
        if sender.is_cancelled():
            raise Cancelled
        left = until - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, CANCEL_CHECK_S))


def _text(name: str, text: str) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode()], dtype=np.object_))


def _error(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message, code))
