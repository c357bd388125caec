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
from play import Said, play_of
from script import DEFAULT_LENGTH, Script

STREAMS = 64  # generated at once by one model
CANCEL_CHECK_S = 0.02
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
FAILURE = "scripted failure in the middle"
TELL = "tell=inputs"  # in the prompt: the answer is what the model was given, as a JSON object


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
    prompt_count_type: type = np.int32
    completion_count_type: type = np.int32
    finish_reason: str | None = None
    stop_reason: str | None = None
    cumulative_text: bool = False
    counts_so_far: bool = False  # each response counts all tokens up to it
    echoes: bool = False  # a whole answer begins with the prompt, whatever it is asked
    # How it behaves.
    decoupled: bool = True
    length: int = DEFAULT_LENGTH
    delay_ms: int = 0
    interval_ms: int = 0
    fail_after: int | None = None  # an error instead of the response with this index
    blocks: bool = False  # one request at a time; the others wait in Triton's queue


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
            if self.wire.blocks:
                self._stream(inputs, sender, request.request_id())
            else:
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
        prompt = inputs["text_input"].decode()
        if play := play_of(prompt):
            return self._said(inputs, play[0])
        script = self._script(inputs)
        text, count = script.text(), script.length
        if TELL in prompt:
            text = json.dumps({name: _plain(value) for name, value in inputs.items()})
        if self.wire.echoes or (self.wire.exclude_input and not inputs.get(self.wire.exclude_input, False)):
            text, count = inputs["text_input"].decode() + text, count + script.prompt_tokens
        return self._response(inputs, script, text, count, last=True)

    def _stream(self, inputs: dict[str, Any], sender: Any, request_id: str) -> None:
        sent, ended = 0, False
        try:
            play = play_of(inputs["text_input"].decode())
            for said in play or ():
                _wait(said.wait_s, sender)
                ended = said.final
                sender.send(self._said(inputs, said), flags=FINAL if ended else 0)
                sent += 1
            if play is not None:
                return
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
                count = sent + 1 if self.wire.counts_so_far else 1
                sender.send(self._response(inputs, script, text, count, last=sent + 1 == script.length))
                sent += 1
        except Cancelled:
            record(self.name, request_id, sent)
        except Exception as error:
            sender.send(_error(f"{self.name} is broken: {error!r}", pb_utils.TritonError.INTERNAL))
        finally:
            if not ended:
                sender.send(flags=FINAL)

    def _response(self, inputs: dict[str, Any], script: Script, text: str, count: int, *, last: bool) -> Any:
        wire = self.wire
        # One dimension also where the config declares a batch: NVIDIA's postprocessing model does the same.
        tensors = [_text("text_output", text)]
        tensors += self._counts(inputs, script.prompt_tokens, count)
        reason = None
        if last:
            reason = "length" if script.length == int(inputs.get(wire.max_tokens, DEFAULT_LENGTH)) else "stop"
        tensors += self._reasons(inputs, reason, None)
        return pb_utils.InferenceResponse(tensors)

    def _said(self, inputs: dict[str, Any], said: Said) -> Any:
        """One response of a play."""
        if said.error is not None:
            code, message = said.error
            # With a text beside it, as NVIDIA's LLM-API model has it.
            tensors = [] if said.text is None else [_text("text_output", said.text)]
            return _error(message, getattr(pb_utils.TritonError, code), tensors)
        tensors = [] if said.text is None else [_text("text_output", said.text, *said.more_texts)]
        tensors += self._counts(inputs, said.prompt_count, said.completion_count, said.count_type)
        if not said.is_empty:
            tensors += self._reasons(inputs, said.finish, said.stop)
        return pb_utils.InferenceResponse(tensors)

    def _counts(self, inputs: dict[str, Any], prompt: Any, completion: Any, kind_said: str | None = None) -> list[Any]:
        wire = self.wire
        shape = [1, 1] if wire.batched else [1]
        tensors = []
        for name, flag, value, kind in (
            (wire.prompt_count, wire.prompt_count_flag, prompt, wire.prompt_count_type),
            (wire.completion_count, wire.completion_count_flag, completion, wire.completion_count_type),
        ):
            if name is None or value is None or not self._flag(inputs, flag):
                continue
            kind = np.dtype(kind_said) if kind_said else kind
            if isinstance(value, str):
                tensors.append(_text(name, value))
            elif isinstance(value, list):
                tensors.append(pb_utils.Tensor(name, np.array(value, dtype=kind)))
            else:
                tensors.append(pb_utils.Tensor(name, np.full(shape, value, dtype=kind)))
        return tensors

    def _reasons(self, inputs: dict[str, Any], finish: str | None, stop: str | None) -> list[Any]:
        tensors = []
        for name, flag, value in (
            (self.wire.finish_reason, "return_finish_reason", finish),
            (self.wire.stop_reason, "return_stop_reason", stop),
        ):
            if name is not None and self._flag(inputs, flag):
                # The word None where there is nothing to say, as NVIDIA's LLM-API model has it.
                tensors.append(_text(name, str(value)))
        return tensors


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


def _text(name: str, *texts: str | bytes) -> Any:
    elements = [text.encode() if isinstance(text, str) else text for text in texts]
    return pb_utils.Tensor(name, np.array(elements, dtype=np.object_))


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.item()


def _error(message: str, code: int, tensors: list[Any] | None = None) -> Any:
    return pb_utils.InferenceResponse(output_tensors=tensors or [], error=pb_utils.TritonError(message, code))
