"""The stand-in's engine. Shapes as in TensorRT-LLM's LLM API reference: `generate_async` gives one object, which is awaited
or iterated, changes with every step and is itself what iterating yields; texts and token ids are cumulative.

What it says (`answer_text` is the whole rule): three bytes of `ANSWER` a token, so that most characters come in halves, which
show as U+FFFD at the end of a text as from any detokenizer. The prompt's tokens are its words and a BOS.
Directives in the prompt: `tokens=40` where it would end by itself, `step=3` tokens a step, `interval=20` ms between steps,
`fail=5` a RequestError after so many tokens, `crash=5` another exception.
Everything that happened is told, one JSON text a line, in the file `events` of the folder that `model` names.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ANSWER = "Grüße aus München 🙂 und zurück: "
BYTES_PER_TOKEN = 3
DEFAULT_LENGTH = 12
BOS = 1
_DIRECTIVE = re.compile(r"\b(tokens|step|interval|fail|crash)=(\d+)")


def answer_text(tokens: int) -> str:
    """The text of so many tokens."""
    size = tokens * BYTES_PER_TOKEN
    encoded = ANSWER.encode()
    return (encoded * (size // len(encoded) + 1))[:size].decode("utf-8", "replace")


class RequestError(RuntimeError):
    """The engine failed at one request."""


@dataclass(kw_only=True)
class SamplingParams:
    max_tokens: int = 32
    stop: list[str] | str | None = None
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    n: int = 1
    best_of: int | None = None
    exclude_input_from_output: bool = True
    include_stop_str_in_output: bool = False
    add_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"require temperature > 0, got temperature={self.temperature}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class RequestOutput:
    """The result of one request."""

    def __init__(self, llm: LLM, request_id: int, prompt: str, params: SamplingParams, streaming: bool) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_token_ids = [BOS] * params.add_special_tokens + [len(word) for word in prompt.split()]
        self.outputs = [CompletionOutput(0)]
        self._llm, self._params, self._streaming = llm, params, streaming
        self._said = {name: int(number) for name, number in _DIRECTIVE.findall(prompt)}
        self._steps: asyncio.Queue[tuple[int, str | None] | Exception] = asyncio.Queue()
        self._done = False
        self._engine = asyncio.ensure_future(self._run())

    @property
    def finished(self) -> bool:
        return self._done

    def abort(self) -> None:
        self._engine.cancel()

    async def aresult(self) -> RequestOutput:
        while not self._done:
            await self._step()
        return self

    def __await__(self) -> Generator[Any, None, RequestOutput]:
        return self.aresult().__await__()

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._done:
            raise StopAsyncIteration
        await self._step()
        return self

    async def _run(self) -> None:
        """The engine, which goes on whether anybody reads or not, until it is told to stop."""
        said, made = self._said, 0
        length = min(self._params.max_tokens, said.get("tokens", DEFAULT_LENGTH))
        stops = [self._params.stop] if isinstance(self._params.stop, str) else self._params.stop or []
        try:
            while True:
                await asyncio.sleep(said.get("interval", 0) / 1000)
                made = min(made + said.get("step", 1), length)
                for name, kind in (("fail", RequestError), ("crash", OSError)):
                    if name in said and made >= said[name]:
                        self._llm.tell(event=name, request=self.request_id, tokens=made)
                        self._steps.put_nowait(kind(f"the {name} that was asked for\nAt:\n  /opt/engine/secret.py(7)"))
                        return
                reason = "length" if made == self._params.max_tokens else "stop" if made == length else None
                if any(stop in answer_text(made) for stop in stops):
                    reason = "stop"
                if self._streaming or reason:
                    self._steps.put_nowait((made, reason))
                if reason:
                    self._llm.tell(event="finished", request=self.request_id, tokens=made, reason=reason)
                    return
        except asyncio.CancelledError:
            self._llm.tell(event="aborted", request=self.request_id, tokens=made)
            self._steps.put_nowait((made, "cancelled"))

    async def _step(self) -> None:
        step = await self._steps.get()
        if isinstance(step, Exception):
            raise step
        made, reason = step
        output = self.outputs[0]
        before = output.text
        output.token_ids.extend(range(len(output.token_ids), made))
        output.text = answer_text(made)
        output.cumulative_logprob = -0.5 * made
        output.finish_reason, self._done = reason, reason is not None
        stops = [self._params.stop] if isinstance(self._params.stop, str) else self._params.stop or []
        for stop in stops if reason == "stop" else ():
            if stop in output.text:
                output.stop_reason = stop
                if not self._params.include_stop_str_in_output:
                    # As the real one: the ids of the stop word are taken back, and a stream keeps the text that it had.
                    kept = before if self._streaming else output.text[: output.text.index(stop)]
                    output.text = kept
                    del output.token_ids[len(kept.encode()) // BYTES_PER_TOKEN :]


class LLM:
    """Refuses arguments that it does not know, as the real one does."""

    def __init__(
        self, model: str, *, backend: str = "pytorch", tensor_parallel_size: int = 1, max_seq_len: int = 10**6
    ):
        self._events = Path(model) / "events"
        self._max_seq_len = max_seq_len
        self._numbers = itertools.count(1)
        self.tell(event="loaded", backend=backend, tensor_parallel_size=tensor_parallel_size)

    def generate_async(
        self, inputs: str, sampling_params: SamplingParams | None = None, *, streaming: bool = False
    ) -> RequestOutput:
        params = sampling_params or SamplingParams()
        prompt_tokens = len(inputs.split()) + params.add_special_tokens
        if prompt_tokens + params.max_tokens > self._max_seq_len:
            raise ValueError(
                f"The sum of prompt length ({prompt_tokens}) and max_tokens ({params.max_tokens}) should not exceed "
                f"max_seq_len ({self._max_seq_len})"
            )
        result = RequestOutput(self, next(self._numbers), inputs, params, streaming)
        self.tell(
            event="asked",
            request=result.request_id,
            prompt_tokens=len(result.prompt_token_ids),
            streaming=streaming,
            sampling={name: value for name, value in vars(params).items() if value is not None},
        )
        return result

    def shutdown(self) -> None:
        self.tell(event="shutdown")

    def tell(self, **event: Any) -> None:
        with self._events.open("a") as file:
            file.write(json.dumps(event) + "\n")
