"""A real LLM inside a real Triton: SmolLM2 on llama.cpp, behind the tensors of NVIDIA's stock `ensemble`.

What a client sees is what TensorRT-LLM's ensemble does with a decoupled model:
- streaming: one response for each piece of text, `num_output_tokens` counting that response only, `num_input_tokens`
  repeated in each; then an empty final response, as the stock BLS model ends.
- `stream` false: one response with the whole text and the total, then the empty final. Without
  `exclude_input_in_output` it starts with the prompt and counts it, as the stock model's does.
- counts are sent only if asked for: `return_num_input_tokens`, `return_num_output_tokens`.

`prompt_tokens` and `completion_tokens` are further outputs that no stock model has: the same counts (of generated
tokens only, never the echoed prompt), sent whenever they are among the requested outputs. Both ways of registering the
model work.

No BOS is added to the prompt (the config says so: `add_special_tokens`): the chat template writes every special token.

execute() returns at once; up to `parallel` requests generate at the same time, each on a thread that mostly sleeps
inside llama.cpp. `queue` more may wait; beyond that a request is refused as UNAVAILABLE.
"""

from __future__ import annotations

import json
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import xllamacpp
from sampling import Refused, completion_body
from tally import EngineError, Tally

sys.path.append(str(Path(__file__).resolve().parents[4]))  # the checkout: this model shares demo/smollm.py

from demo.smollm import default_threads, llama_params


@dataclass(frozen=True)
class Job:
    """One request, taken out of Triton's memory while execute() runs."""

    inputs: dict[str, list[Any]]
    outputs: frozenset[str]
    sender: Any

    def flag(self, name: str) -> bool:
        return bool(self.inputs.get(name, [False])[0])


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        settings = {key: entry["string_value"] for key, entry in config["parameters"].items()}
        self._input_names = [entry["name"] for entry in config["input"]]
        parallel = int(settings["parallel"])
        params = llama_params(
            parallel=parallel,
            threads=int(settings["threads"]) or default_threads(),
            context_tokens=int(settings["context_tokens"]),
        )
        # xllamacpp cannot do without an HTTP listener of its own; a key that nobody knows closes it.
        params.api_keys = [secrets.token_hex(32)]
        self._llama = xllamacpp.Server(params)
        self._threads = ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="generate")
        self._places = BoundedSemaphore(parallel + int(settings["queue"]))

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                job = self._read(request, sender)
            except Refused as refusal:
                _end(sender, pb_utils.TritonError(str(refusal), pb_utils.TritonError.INVALID_ARG))
                continue
            if not self._places.acquire(blocking=False):
                _end(sender, pb_utils.TritonError("all slots and the queue are full", pb_utils.TritonError.UNAVAILABLE))
                continue
            self._threads.submit(self._answer, job)

    def finalize(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _read(self, request: Any, sender: Any) -> Job:
        inputs: dict[str, list[Any]] = {}
        for name in self._input_names:
            tensor = pb_utils.get_input_tensor_by_name(request, name)
            if tensor is None:
                continue
            values = tensor.as_numpy()
            if values.ndim != 2 or values.shape[0] != 1 or (values.shape[1] == 0 and name == "text_input"):
                raise Refused(f"input '{name}' must have shape [1, n], one prompt a request; got {list(values.shape)}")
            if values.shape[1] > 0:
                inputs[name] = [_plain(value) for value in values[0]]
        return Job(inputs, frozenset(request.requested_output_names()), sender)

    def _answer(self, job: Job) -> None:
        failure: Any = None
        try:
            if not job.sender.is_cancelled():
                self._generate(job)
        except Refused as refusal:
            failure = pb_utils.TritonError(str(refusal), pb_utils.TritonError.INVALID_ARG)
        except EngineError as error:
            failure = pb_utils.TritonError(str(error), _triton_code(error.status))
        except Exception as error:  # whatever it is, the client must get an end
            pb_utils.Logger.log_error(f"generation failed: {error!r}")
            failure = pb_utils.TritonError("generation failed", pb_utils.TritonError.INTERNAL)
        finally:
            self._places.release()
            _end(job.sender, failure)

    def _generate(self, job: Job) -> None:
        """Send the job's responses. llama.cpp calls back with each chunk; a true answer makes it stop generating."""
        body = completion_body(job.inputs)
        stream = job.flag("stream")
        tally = Tally()
        pieces: list[str] = []
        problem: list[Exception] = []
        cancelled = False

        def on_chunk(chunk: str) -> bool:
            nonlocal cancelled
            try:
                # Asked here and nowhere else: chunks come at least as often as tokens and prompt batches.
                cancelled = job.sender.is_cancelled()
                text = "" if cancelled else tally.read(chunk)
                if text and stream:
                    job.sender.send(_response(job, text, tally.prompt_tokens, tally.take()))
                pieces.append(text)
            except Exception as error:  # an exception does not cross llama.cpp's C++; carry it around
                problem.append(error)
                return True
            return bool(cancelled)

        self._llama.handle_completions(json.dumps(body), on_chunk)
        if problem:
            raise problem[0]
        if cancelled:
            return
        if not tally.finished:
            raise RuntimeError("llama.cpp ended without a finish reason")
        if not stream:
            echoed = not job.flag("exclude_input_in_output")
            text = (job.inputs["text_input"][0] if echoed else "") + "".join(pieces)
            job.sender.send(_response(job, text, tally.prompt_tokens, tally.take(), echoed=echoed))
        elif (rest := tally.take()) or not any(pieces):
            # Tokens without text at the end (the end token, a cut stop word) still count.
            job.sender.send(_response(job, "", tally.prompt_tokens, rest))


def _response(job: Job, text: str, prompt_tokens: int, generated: int, *, echoed: bool = False) -> Any:
    tensors = [pb_utils.Tensor("text_output", np.array([[text.encode()]], dtype=np.object_))]
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": generated}
    if job.flag("return_num_input_tokens"):
        counts["num_input_tokens"] = prompt_tokens
    if job.flag("return_num_output_tokens"):
        counts["num_output_tokens"] = generated + (prompt_tokens if echoed else 0)
    for name, count in counts.items():
        if name in job.outputs:
            tensors.append(pb_utils.Tensor(name, np.array([[count]], dtype=np.int32)))
    return pb_utils.InferenceResponse(tensors)


def _end(sender: Any, failure: Any = None) -> None:
    """The error, if any, as a response of its own; then the empty final response that ends the request."""
    if failure is not None:
        sender.send(pb_utils.InferenceResponse(error=failure))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _triton_code(http_status: int) -> Any:
    # Looked up here, since Triton puts TritonError into the module only after it has imported this file.
    error = pb_utils.TritonError
    codes = {400: error.INVALID_ARG, 501: error.UNSUPPORTED, 503: error.UNAVAILABLE}
    return codes.get(http_status, error.INTERNAL)


def _plain(value: Any) -> Any:
    """A numpy element as a Python value; text must be UTF-8."""
    if not isinstance(value, bytes):
        return value.item() if isinstance(value, np.generic) else value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Refused("text must be UTF-8") from None
