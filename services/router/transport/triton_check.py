"""The check of a Triton worker: everything that its registration claims, against the server as it is now.

From the outside in: reachable, ready, the model there and loaded, its tensors as named, the template usable, and one short
generation whose usage is read. What is wrong is said by name. Imported by the Triton transport only.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from speedinfer.common.v1 import operation_pb2
from speedinfer.router.v1 import frame_pb2

from services.common.ids import uuid7
from services.router.transport import port
from services.router.transport.port import Dispatch, Finding, WorkerFailure
from services.router.transport.template import DEFAULT_TEMPLATE, DEFAULT_WARNING, ChatTemplate, TemplateProblem, load
from services.router.transport.triton_answer import CountReader
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_errors import UNREACHABLE
from services.router.transport.triton_http import Reply
from services.router.transport.triton_link import TritonLink
from services.router.transport.triton_model import EXCLUDE_INPUT, STREAM, Problems, TensorPlan, resolve, steps
from services.router.transport.triton_request import prepare
from services.router.transport.triton_tensors import Outputs

_MESSAGE = "Count from one to twenty in words, separated by commas."
# Enough to tell counts that grow from counts of one response each: the first four of the former exceed it.
PROBE_TOKENS = 8
_MAX_RESPONSES = 64
_MAX_STEPS = 16
_MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class Known:
    """What a passed check leaves for requests."""

    # Triton's model name -> how to talk to it.
    plans: dict[str, TensorPlan]
    template: ChatTemplate


class _Wrong(Exception):
    """It answers, but not as registered."""


class _NotReady(Exception):
    """It is there and not ready."""


class Check:
    """One check. `run` once."""

    def __init__(
        self, link: TritonLink, config: TritonConfig, supported_models: Sequence[str], timeout_s: float
    ) -> None:
        self._link, self._config, self._timeout_s = link, config, timeout_s
        # Each of Triton's models once, with a public name that it serves.
        self._models = {config.worker_model(name): name for name in reversed(supported_models)}
        self._warnings: list[str] = []
        self._findings: list[str] = []

    async def run(self) -> tuple[Finding, Known | None]:
        """The finding, and what was learned if it is a good one."""
        error, detail, known = "", "", None
        try:
            async with asyncio.timeout(self._timeout_s):
                known = await self._everything()
        except TimeoutError:
            error, detail = port.TIMEOUT, f"the check did not end within {self._timeout_s:g} s"
        except _Wrong as wrong:
            error, detail = port.MISCONFIGURED, str(wrong)
        except _NotReady as reason:
            error, detail = port.NOT_READY, str(reason)
        except WorkerFailure as failure:
            error, detail = word(failure), failure.for_operators
        return Finding(error, detail, tuple(self._warnings), tuple(self._findings)), known

    async def _everything(self) -> Known:
        ready = await self._link.http.server_ready()
        plans = {model: await self._plan(model) for model in self._models}
        if not ready:
            raise _NotReady(await self._unready_server())
        problem = await self._link.choose()
        if problem and self._config.protocol == "grpc":
            raise _Wrong(problem)
        if problem:
            self._warnings.append(f"{problem}; HTTP is used, by which a generation cannot be cancelled")
        self._findings.append(f"protocol: {'grpc' if self._link.uses_grpc else 'http'}")
        template = await self._template()
        if self._config.check == "token":
            for model, public in self._models.items():
                plans[model] = await self._generated(plans[model], template, public)
        elif any(plan.usage_sums is None and plan.decoupled for plan in plans.values()):
            self._warnings.append(
                "whether a response's completion count is its own or a total is not known without a test request; its own "
                "is assumed; 'usage_mode' says which"
            )
        return Known(plans, template)

    async def _plan(self, model: str) -> TensorPlan:
        http, version = self._link.http, self._config.model_version
        metadata = await http.metadata(model, version)
        if metadata.status != 200 or not isinstance(metadata.value, dict):
            await self._explain_missing(model, metadata)
        if not await http.model_ready(model, version):
            raise _NotReady(f"model '{model}' is not ready")
        config = await http.config(model, version)
        if config.status != 200 or not isinstance(config.value, dict):
            raise _NotReady(f"the config of model '{model}' cannot be read: {config.error or config.status}")
        behind = [await http.config(step, "") for step in steps(config.value)[:_MAX_STEPS]]
        step_configs = [reply.value for reply in behind if reply.status == 200 and isinstance(reply.value, dict)]
        plan = resolve(model, self._config, metadata.value, config.value, step_configs)
        if isinstance(plan, Problems):
            raise _Wrong("; ".join(plan.sentences))
        self._findings.append(
            f"model: '{model}', {'decoupled' if plan.decoupled else 'not decoupled'}, text "
            f"{'cumulative' if plan.cumulative_text else 'in deltas'}, inputs "
            f"{', '.join([plan.text.name, *(t.name for t in plan.own.values()), *(t.name for _, t in plan.parameters)])}"
        )
        return plan

    async def _explain_missing(self, model: str, metadata: Reply) -> None:
        """Raise what it means that Triton gives no metadata: there is no such model, or it is not loaded."""
        index = await self._link.http.index()
        version = f" version {self._config.model_version}" if self._config.model_version else ""
        if model in index and not index[model].startswith("READY"):
            state = index[model] or "it is in the server's repository and not loaded"
            raise _NotReady(f"model '{model}' is not ready: {state}")
        # Folders without a state are no models.
        names = sorted(name for name, state in index.items() if state)[:_MAX_LISTED]
        has = f"; it has {', '.join(names)}" if names else ""
        if index or metadata.status == 404 or "unknown model" in metadata.error.lower():
            raise _Wrong(f"the server has no model '{model}'{version}{has}")
        raise _NotReady(f"the metadata of model '{model}' cannot be read: {metadata.error or metadata.status}")

    async def _unready_server(self) -> str:
        index = await self._link.http.index()
        unready = [
            f"{name} ({state})" for name, state in sorted(index.items()) if state and not state.startswith("READY")
        ]
        listed = f": {', '.join(unready[:_MAX_LISTED])}" if unready else ""
        return f"the server says that it is not ready{listed}"

    async def _template(self) -> ChatTemplate:
        config = self._config
        if config.chat_template is None:
            self._warnings.append(DEFAULT_WARNING)
        try:
            source = DEFAULT_TEMPLATE
            if config.chat_template is not None:
                source = await asyncio.to_thread(load, config.chat_template)
            return ChatTemplate(source, bos_token=config.bos_token, eos_token=config.eos_token)
        except TemplateProblem as problem:
            raise _Wrong(f"'chat_template' cannot be used: {problem}") from None

    async def _generated(self, plan: TensorPlan, template: ChatTemplate, public: str) -> TensorPlan:
        """The plan with what a short generation showed."""
        if plan.decoupled and plan.usage_sums is None:
            plan = await self._usage_mode(plan, template, public)
            if EXCLUDE_INPUT in plan.own or STREAM not in plan.own:
                return plan
        # Only an answer in one piece can begin with the prompt, and only where the model cannot be told not to.
        echo = EXCLUDE_INPUT not in plan.own and (STREAM in plan.own or not plan.decoupled)
        responses, prompt = await self._responses(plan, template, public, 1, stream=plan.decoupled and not echo)
        counts = self._counts(plan, responses, 1)
        if echo and responses:
            text = b"".join(
                value for r in responses for value in r.get(plan.text_output, [])[:1] if type(value) is bytes
            )
            if text.decode("utf-8", "replace").startswith(prompt):
                grown = counts.complete is not None and (counts.complete.completion or 0) > 1
                plan = replace(plan, echoes_prompt=True, counts_prompt=grown)
                self._findings.append("answers that are no streams begin with the prompt, which is cut off")
        return plan

    async def _usage_mode(self, plan: TensorPlan, template: ChatTemplate, public: str) -> TensorPlan:
        responses, _ = await self._responses(plan, template, public, PROBE_TOKENS, stream=True)
        self._counts(plan, responses, PROBE_TOKENS)
        name = plan.completion_tokens_output
        reported = [r[name][0] for r in responses if r.get(name) and isinstance(r[name][0], int)]
        sums = sums_up(reported, PROBE_TOKENS)
        if sums is None:
            self._warnings.append(
                f"the test answer was too short to tell whether '{name}' counts one response or all so far; one is "
                "assumed; 'usage_mode' says which"
            )
        self._findings.append(f"usage mode: {'last' if sums is False else 'sum'}")
        return replace(plan, usage_sums=sums)

    async def _responses(
        self, plan: TensorPlan, template: ChatTemplate, public: str, tokens: int, *, stream: bool
    ) -> tuple[list[Outputs], str]:
        """A short generation's responses (at most as many as it takes) and the prompt."""
        members: list[tuple[str, bytes]] = [("messages", orjson.dumps([{"role": "user", "content": _MESSAGE}]))]
        if tokens > 1:
            # The probe needs a few tokens; models that take the parameter do not stop before them.
            members.append(("min_tokens", str(tokens).encode()))
        dispatch = Dispatch(
            request_id=f"check-{uuid7()}",
            attempt=1,
            operation=operation_pb2.OPERATION_CHAT_COMPLETION,
            model=public,
            stream=stream,
            members=members,
            output_limit=tokens,
        )
        ids: dict[str, Any] = {"end_id": self._config.end_id, "pad_id": self._config.pad_id}
        try:
            asked = prepare(plan, template, dispatch, datetime.now(UTC).astimezone(), **ids)
        except WorkerFailure as failure:
            # Nothing was sent: it is the template or the registered inputs.
            raise _Wrong(failure.for_operators) from None
        responses: list[Outputs] = []
        async with aclosing(self._link.respond(plan, asked, dispatch)) as source:
            async for outputs in source:
                if outputs is not None:
                    responses.append(outputs)
                # Read to its own end, which is near: a cancel that meets the end of a stream has killed Triton 2.51.
                if len(responses) >= _MAX_RESPONSES:
                    break
        return responses, asked.prompt

    def _counts(self, plan: TensorPlan, responses: Sequence[Outputs], tokens: int) -> CountReader:
        counts = CountReader(plan, tokens)
        for outputs in responses:
            counts.read(outputs)
        usage = counts.complete
        if usage is None:
            there = counts.usage
            absent = [
                name
                for name, value in (
                    (plan.prompt_tokens_output, there and there.prompt),
                    (plan.completion_tokens_output, there and there.completion),
                )
                if value is None
            ]
            names = " and ".join(f"'{name}'" for name in absent)
            raise _Wrong(f"model '{plan.model}' reports no usage: its answer carried no usable {names}")
        self._findings.append(f"usage: prompt_tokens={usage.prompt} completion_tokens={usage.completion}")
        return counts


def sums_up(reported: Sequence[int], limit: int) -> bool | None:
    """Whether the counts of an answer's responses are each their own (True) or totals so far (False). None: too short
    to tell."""
    if sum(reported) > limit:
        return False
    growing = list(reported) == sorted(set(reported))
    return None if growing else True


def word(failure: WorkerFailure) -> str:
    """The finding for a failed request."""
    if failure.not_allowed:
        return port.MISCONFIGURED
    if failure.message == UNREACHABLE:
        return port.CONNECT
    return {
        frame_pb2.FAILURE_REASON_TIMEOUT: port.TIMEOUT,
        frame_pb2.FAILURE_REASON_REJECTED: port.MISCONFIGURED,
        frame_pb2.FAILURE_REASON_INVALID_RESPONSE: port.INVALID_RESPONSE,
        frame_pb2.FAILURE_REASON_ANSWER_TOO_LARGE: port.INVALID_RESPONSE,
    }.get(failure.reason, port.NOT_READY)
