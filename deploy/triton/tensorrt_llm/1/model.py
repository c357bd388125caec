"""TensorRT-LLM's LLM API as a Triton model that counts tokens: an overlay for NVIDIA's `llmapi` model.

What a client sees (docs/guides/triton-llmapi.md):
- streaming: one response for each step of the engine, `text_output` the text so far, `num_output_tokens` the tokens that
  this response adds, `num_input_tokens` the prompt's in each; then an empty FINAL.
- else: one response with everything and the totals, then the empty FINAL.
- a stop word ends the answer; a stream's last response has the word in its text, a whole answer ends before it.
- a cancelled request is aborted in the engine; every request ends with a FINAL, on every path.
- errors are TritonErrors with codes and one line of text; what went wrong inside is in the server's log, prompts and
  texts are not.

Only the public LLM API is used: LLM, SamplingParams, generate_async, and of its result `outputs`, `prompt_token_ids`,
`finished`, `abort`. execute() returns at once; generations run on one event loop in a thread of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore, Thread
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
import yaml
from llm_request import Asked, Refused, flag, read, without_stop
from model_settings import SettingsProblem, parse
from response_channel import ResponseChannel
from token_counts import TokenCounts

# Threads in which responses are sent and cancels asked for: short calls that wait for Triton's process.
_THREADS = 8
_MAX_ERROR_CHARS = 300
# How long running requests may take to end when the model is unloaded.
_SETTLE_S = 10.0


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        if sum(int(group.get("count", 1)) for group in config.get("instance_group", [])) > 1:
            raise pb_utils.TritonModelException(
                "instance_group.count must be 1: each instance would load the model again"
            )
        parameters = {name: entry["string_value"] for name, entry in config.get("parameters", {}).items()}
        self._add_special_tokens = parameters.get("add_special_tokens", "true").strip().lower() != "false"
        self._input_names = [entry["name"] for entry in config["input"]]
        self._places = BoundedSemaphore(int(parameters.get("max_requests", "1024")))
        # The stock model takes another file by this variable, too.
        path = Path(__file__).parent / os.environ.get("LLM_CONFIG_PATH", "model.yaml")
        try:
            settings = parse(yaml.safe_load(path.read_text()))
        except (OSError, SettingsProblem, yaml.YAMLError) as problem:
            raise pb_utils.TritonModelException(f"{path} cannot be used: {problem}") from None
        self._cancel_check_s = settings.cancel_check_s
        # Not at the top: importing it opens GPUs, and is slow.
        from tensorrt_llm import LLM, SamplingParams
        from tensorrt_llm.llmapi import RequestError

        self._SamplingParams, self._RequestError = SamplingParams, RequestError
        self._llm = LLM(**settings.llm)
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="responses")
        # Request id -> generations, for `stop`.
        self._running: dict[str, set[asyncio.Task[None]]] = {}
        self._loop = asyncio.new_event_loop()
        self._loop_thread = Thread(target=self._loop.run_forever, name="generations", daemon=True)
        self._loop_thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            channel = ResponseChannel(request.get_response_sender())
            try:
                self._begin(request, channel)
            except Refused as refusal:
                channel.end(_error("INVALID_ARG", str(refusal)))
            except Exception as error:  # whatever it is, the client must get an end
                pb_utils.Logger.log_error(f"a request could not be begun: {_one_line(error)}")
                channel.end(_error("INTERNAL", "the request could not be begun"))

    def finalize(self) -> None:
        asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(_SETTLE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join(_SETTLE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._llm.shutdown()

    def _begin(self, request: Any, channel: ResponseChannel) -> None:
        """Everything that needs Triton's request, whose memory is only there until execute() returns."""
        tensors = {name: values for name in self._input_names if (values := _values(request, name)) is not None}
        if flag(tensors, "stop"):
            self._loop.call_soon_threadsafe(self._stop, request.request_id())
            channel.end()
            return
        asked = read(tensors, add_special_tokens=self._add_special_tokens)
        if not self._places.acquire(blocking=False):
            channel.end(_error("UNAVAILABLE", "the queue of the model is full"))
            return
        asyncio.run_coroutine_threadsafe(self._answer(asked, channel, request.request_id()), self._loop)

    async def _answer(self, asked: Asked, channel: ResponseChannel, request_id: str) -> None:
        """One request, from here to its FINAL."""
        generation = asyncio.ensure_future(self._generate(asked, channel))
        self._running.setdefault(request_id, set()).add(generation)
        failure: Any = None
        try:
            await self._watch(generation, channel)
            await asyncio.wait({generation})
            failure = self._failure(generation)
        except Exception as error:
            generation.cancel()
            pb_utils.Logger.log_error(f"a request could not be watched: {_one_line(error)}")
            failure = _error("INTERNAL", "generation failed")
        finally:
            self._running[request_id].discard(generation)
            if not self._running[request_id]:
                del self._running[request_id]
            self._places.release()
            await self._in_thread(channel.end, failure)

    async def _watch(self, generation: asyncio.Task[None], channel: ResponseChannel) -> None:
        """Until the generation is over or its client has cancelled it."""
        while not generation.done():
            if await self._in_thread(channel.cancelled):
                generation.cancel()
                return
            await asyncio.wait({generation}, timeout=self._cancel_check_s)

    async def _generate(self, asked: Asked, channel: ResponseChannel) -> None:
        try:
            result = self._llm.generate_async(
                asked.prompt, sampling_params=self._SamplingParams(**asked.sampling), streaming=asked.streaming
            )
        except ValueError as error:
            # The engine's own checks of values and lengths.
            raise Refused(_one_line(error)) from None
        counts = TokenCounts()
        try:
            if not asked.streaming:
                await self._in_thread(channel.send, _tensors(asked, await result, counts))
                return
            async for step in result:
                # Made here and not in the thread: the step is the result itself, and changes with the next one.
                await self._in_thread(channel.send, _tensors(asked, step, counts))
        finally:
            if not result.finished:
                result.abort()

    def _failure(self, generation: asyncio.Task[None]) -> Any:
        """What a generation that is over has to be told as; None if it went well."""
        if generation.cancelled():
            return _error("CANCELLED", "the request was cancelled")
        error = generation.exception()
        if error is None:
            return None
        if isinstance(error, Refused):
            return _error("INVALID_ARG", str(error))
        pb_utils.Logger.log_error(f"generation failed: {_one_line(error)}")
        # The engine's words about one request (its length, mostly) are for its sender; others are for the log.
        return _error("INTERNAL", _one_line(error) if isinstance(error, self._RequestError) else "generation failed")

    def _stop(self, request_id: str) -> None:
        for generation in self._running.get(request_id, ()):
            generation.cancel()

    async def _settle(self) -> None:
        for request_id in list(self._running):
            self._stop(request_id)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=_SETTLE_S / 2)

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await self._loop.run_in_executor(self._threads, call, *args)


def _tensors(asked: Asked, result: Any, counts: TokenCounts) -> list[Any]:
    """One response."""
    output = result.outputs[0]
    text = output.text if asked.streaming else without_stop(output.text, output.stop_reason)
    tensors = [
        _text("text_output", asked.prompt + text if asked.echoes else text),
        pb_utils.Tensor("num_input_tokens", np.array([len(result.prompt_token_ids)], dtype=np.int32)),
        pb_utils.Tensor("num_output_tokens", np.array([counts.take(output.token_ids)], dtype=np.int32)),
    ]
    # Known at the end only; the stock model sends the word None before.
    if asked.finish_reason and output.finish_reason is not None:
        tensors.append(_text("finish_reason", str(output.finish_reason)))
    if asked.stop_reason and output.stop_reason is not None:
        tensors.append(_text("stop_reason", str(output.stop_reason)))
    if asked.cumulative_logprob and output.cumulative_logprob is not None:
        tensors.append(pb_utils.Tensor("cumulative_logprob", np.array([output.cumulative_logprob], dtype=np.float32)))
    return tensors


def _values(request: Any, name: str) -> list[Any] | None:
    """The elements of an input; None if it is absent."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    values = tensor.as_numpy()
    if values.ndim != 1:
        raise Refused(f"{name} must be one-dimensional; got {values.ndim} dimensions")
    return list(values.tolist())


def _text(name: str, text: str) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode("utf-8", "replace")], dtype=np.object_))


def _error(code: str, message: str) -> Any:
    # Looked up by name, since Triton fills TritonError in only after it has imported this file.
    return pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))


def _one_line(error: BaseException) -> str:
    """The first line of an exception's text, without whatever traceback follows it."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_MAX_ERROR_CHARS]
