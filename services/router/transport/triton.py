"""The Triton transport: an OpenAI request in, tensors to a Triton server, OpenAI frames out. The factory imports it.

Reads top-down as a request goes: the plan that the check made, the tensors, the server's responses, the frames. Everything
between is pure (`triton_request.py`, `triton_answer.py`); protocols are in `triton_link.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from speedinfer.router.v1 import fleet_pb2, frame_pb2

from services.common.settings import RouterLimits
from services.router.networks import EVERYWHERE, Networks
from services.router.transport import port
from services.router.transport.port import Accepted, Activity, Dispatch, Event, Finding, WorkerFailure
from services.router.transport.template_thread import beside_the_loop
from services.router.transport.triton_answer import AnswerReader
from services.router.transport.triton_check import Check, Known, word
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_link import TritonLink
from services.router.transport.triton_openai import OpenAiWriter
from services.router.transport.triton_request import prepare

# How long a worker whose answer was ended here may take to end it, too, before it is told.
END_WAIT_S = 0.25
_ACTIVITY = Activity()
# One choice of text is all that the tensors of stock models can say.
FEATURES = frozenset({fleet_pb2.FEATURE_CHAT, fleet_pb2.FEATURE_COMPLETION})


def local_now() -> datetime:
    """The time as templates see it: with this machine's own offset."""
    return datetime.now(UTC).astimezone()


class TritonTransport:
    """One Triton server, for `runtime: triton` and `runtime: tensorrt-llm` alike."""

    def __init__(
        self,
        endpoint: str,
        config: TritonConfig,
        supported_models: Sequence[str],
        runtime: str,
        limits: RouterLimits,
        *,
        networks: Networks = EVERYWHERE,
        now: Callable[[], datetime] = local_now,
    ) -> None:
        self._config, self._models, self._limits, self._now = config, tuple(supported_models), limits, now
        self._link = TritonLink(endpoint, config, max_answer_bytes=limits.max_answer_bytes, networks=networks)
        self._known: Known | None = None

    @property
    def end_wait_s(self) -> float:
        """Triton 2.51 has been killed by a cancel that met the end of a stream."""
        return END_WAIT_S

    @property
    def features(self) -> frozenset[fleet_pb2.Feature.ValueType]:
        """Chats and completions of one choice; nothing else fits into the tensors."""
        return FEATURES

    @property
    def counts_tokens(self) -> bool:
        """Triton has no such question."""
        return False

    async def count(self, dispatch: Dispatch) -> int | None:
        """See port.Transport."""
        return None

    async def check(self) -> Finding:
        """See port.Transport. What it learns replaces what an earlier check learned: a server that comes back may have
        another model loaded."""
        finding, known = await Check(self._link, self._config, self._models, self._limits.check_timeout_s).run()
        if known is not None:
            self._known = known
        return finding

    async def probe(self) -> Finding:
        """The readiness of the server and of each of its models that serve us."""
        http, version = self._link.http, self._config.model_version
        try:
            async with asyncio.timeout(self._limits.probe_timeout_s):
                if not await http.server_ready():
                    return Finding(port.NOT_READY, "the server says that it is not ready")
                for model in dict.fromkeys(map(self._config.worker_model, self._models)):
                    if not await http.model_ready(model, version):
                        return Finding(port.NOT_READY, f"model '{model}' is not ready")
        except TimeoutError:
            return Finding(port.TIMEOUT, f"no answer within {self._limits.probe_timeout_s:g} s")
        except WorkerFailure as failure:
            return Finding(word(failure), failure.for_operators)
        return Finding()

    async def generate(self, dispatch: Dispatch) -> AsyncGenerator[Event, None]:
        """See port.Transport. Closing the iterator cancels the request over gRPC; over HTTP it closes the connection."""
        known = self._known
        plan = known.plans.get(self._config.worker_model(dispatch.model)) if known is not None else None
        if known is None or plan is None:
            raise WorkerFailure(
                frame_pb2.FAILURE_REASON_UPSTREAM, "the worker is not ready", detail="no check has passed yet"
            )
        now = self._now()
        ids = {"end_id": self._config.end_id, "pad_id": self._config.pad_id}
        asked = await beside_the_loop(dispatch.members, lambda: prepare(plan, known.template, dispatch, now, **ids))
        writer = OpenAiWriter(dispatch.operation, dispatch.model, dispatch.request_id, int(now.timestamp()))
        reader = AnswerReader(
            plan,
            asked,
            writer,
            stream=dispatch.stream,
            max_bytes=self._limits.max_answer_bytes,
            eos_token=self._config.eos_token,
        )
        accepted = False
        async with aclosing(self._link.respond(plan, asked, dispatch)) as responses:
            try:
                async for outputs in responses:
                    if outputs is None:
                        yield _ACTIVITY
                        continue
                    if not accepted:
                        accepted = True
                        yield Accepted(asked.ignored)
                    for event in reader.read(outputs):
                        yield event
                    if reader.enough:
                        break
            except WorkerFailure as failure:
                if not (failure.connection_lost and reader.said_its_end):
                    failure.limit_demanded = plan.demands_limit
                    await _see_end(responses)
                    raise
            for event in reader.end():
                yield event
            if reader.enough:
                # The client has it all.
                await _see_end(responses)

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()


async def _see_end(responses: AsyncGenerator[object, None]) -> None:
    """Let a request that ends by itself now do so: a cancel that meets the end of a stream has killed Triton 2.51. One that
    has failed by itself is over already."""
    with suppress(TimeoutError, WorkerFailure):
        async with asyncio.timeout(END_WAIT_S):
            async for _ in responses:
                pass
