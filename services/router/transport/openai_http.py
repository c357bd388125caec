"""The OpenAI transport: one worker with an OpenAI-compatible HTTP server. `factory.py` makes it.

What is said on the wire is decided by the pure modules beside it; here it is sent and read.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

import aiohttp
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1.fleet_pb2 import Feature
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_INVALID_RESPONSE

from services.common.settings import RouterLimits
from services.router.networks import EVERYWHERE, Networks
from services.router.safe_text import SafeText
from services.router.transport import openai_body, openai_count, openai_errors, openai_fields, openai_frames
from services.router.transport.openai_check import Check, Learned
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.openai_connection import Connection, read_bounded, read_error
from services.router.transport.port import Accepted, Activity, Dispatch, Done, Event, Finding, WorkerFailure
from services.router.transport.sse_parser import LineTooLong, SseEvent, SseParser

PATHS: dict[Operation.ValueType, str] = {
    OPERATION_CHAT_COMPLETION: "/chat/completions",
    OPERATION_COMPLETION: "/completions",
    OPERATION_EMBEDDING: "/embeddings",
}
# Of a prompt that is to be counted: there is a bound on the work that a request may cause which nobody pays for.
MAX_COUNTED_BYTES = 4 * 1024 * 1024
# How long the check waits for one.
COUNT_CHECK_S = 2.0
# The answer to it: most list all tokens.
MAX_COUNT_ANSWER_BYTES = 4 * 1024 * 1024
_ACTIVITY = Activity()
_DONE = Done()
_STREAM_TYPES = frozenset({"text/event-stream", "text/plain", "application/octet-stream"})


class OpenAiTransport:
    """A worker behind `http://host:port[/prefix][/v1]`. Implements port.Transport."""

    def __init__(
        self,
        endpoint: str,
        config: OpenAiConfig,
        supported_models: Sequence[str],
        runtime: str,
        limits: RouterLimits,
        *,
        networks: Networks = EVERYWHERE,
    ) -> None:
        self._config = config
        self._models = tuple(supported_models)
        self._runtime = runtime
        self._limits = limits
        self._connection = Connection(endpoint, config, networks)
        self._safe = SafeText(self._connection.secrets)
        self._learned = Learned.before_check(config, runtime)
        # Why the last check would not have the worker asked to count; empty if nothing speaks against it.
        self._miscounts = ""

    @property
    def end_wait_s(self) -> float:
        """None: such servers take a closed connection at any time."""
        return 0.0

    @property
    def features(self) -> frozenset[Feature.ValueType]:
        """What the last check found, or everything that the protocol has."""
        return self._learned.features

    async def check(self) -> Finding:
        """See port.Transport."""
        check = Check(self._connection, self._config, self._models, self._runtime, self._try)
        finding, learned = await check.run()
        if learned is None:
            return finding
        self._learned = learned
        return replace(finding, warnings=(*finding.warnings, *await self._compare_counts(check.prompts)))

    async def _compare_counts(self, prompts: Sequence[tuple[Dispatch, int]]) -> list[str]:
        """Whether the worker counts what it reports. One that does not serves, and is not asked; the warning says why."""
        self._miscounts = ""
        if self._config.count_tokens == "none":
            return []
        for dispatch, reported in prompts:
            try:
                async with asyncio.timeout(COUNT_CHECK_S):
                    count = await self.count(dispatch)
            except (WorkerFailure, TimeoutError) as error:
                why = error.detail or error.message if isinstance(error, WorkerFailure) else "no answer in time"
                self._miscounts = f"count_tokens: not used, since the worker does not count ({why})"
                break
            if count is not None and count < reported:
                self._miscounts = (
                    f"count_tokens: not used, since {count} tokens are counted where {reported} are reported"
                )
                break
        return [self._miscounts] if self._miscounts else []

    async def probe(self) -> Finding:
        """See port.Transport."""
        return await Check(self._connection, self._config, self._models, self._runtime, self._try).probe()

    def generate(self, dispatch: Dispatch) -> AsyncIterator[Event]:
        """See port.Transport."""
        return self._generate(dispatch, self._learned.model(dispatch.model), self._learned.stream_options)

    @property
    def counts_tokens(self) -> bool:
        """As the registration says, unless the check showed otherwise."""
        return self._config.count_tokens != "none" and not self._miscounts

    async def count(self, dispatch: Dispatch) -> int | None:
        """See port.Transport."""
        dialect = self._config.count_tokens
        if sum(len(value) for _, value in dispatch.members) > MAX_COUNTED_BYTES:
            return None
        members, _ = openai_fields.choose(
            dispatch.operation, dispatch.members, self._runtime, self._config.forward_unknown_fields
        )
        body = openai_count.body(dialect, dispatch.operation, members, self._learned.model(dispatch.model))
        if body is None:
            return None
        try:
            return await self._ask_count(body, dispatch)
        except WorkerFailure as failure:
            if not failure.stale_connection:
                raise
            return await self._ask_count(body, replace(dispatch, fresh_connection=True))

    async def _ask_count(self, body: bytes, dispatch: Dispatch) -> int:
        dialect = self._config.count_tokens
        url = self._connection.root + (self._config.count_tokens_path or openai_count.PATHS[dialect])
        async with self._connection.post(url, body, dispatch) as response:
            if response.status != 200:
                raise openai_frames.invalid(f"status {response.status} for a count")
            found = openai_count.read(dialect, await read_bounded(response, MAX_COUNT_ANSWER_BYTES))
        if found is None:
            raise openai_frames.invalid("an answer without a count")
        return found

    def _try(self, dispatch: Dispatch, model: str, stream_options: str) -> AsyncIterator[Event]:
        return self._generate(dispatch, model, stream_options)

    async def close(self) -> None:
        """See port.Transport."""
        await self._connection.close()

    async def _generate(self, dispatch: Dispatch, model: str, stream_options: str) -> AsyncIterator[Event]:
        members, ignored = openai_fields.choose(
            dispatch.operation, dispatch.members, self._runtime, self._config.forward_unknown_fields
        )
        body = openai_body.build(dispatch, members, model, self._config.max_tokens_field, stream_options)
        url = f"{self._connection.api}{PATHS[dispatch.operation]}"
        async with self._connection.post(url, body, dispatch) as response:
            # It was sent, and a stream may be long.
            del members, body
            if response.status != 200:
                retry_after = response.headers.get("Retry-After")
                raise openai_errors.from_status(response.status, await read_error(response), retry_after, self._safe)
            if not dispatch.stream:
                _expect(response, streaming=False)
                try:
                    text = await read_bounded(response, self._limits.max_answer_bytes)
                except (WorkerFailure, aiohttp.ClientError, OSError):
                    yield Accepted(ignored)
                    raise
                # All at once, so that it is one batch for whoever waits.
                yield Accepted(ignored)
                yield openai_frames.read_whole(text, dispatch.model, dispatch.operation, dispatch.choices, self._safe)
                yield _DONE
                return
            if response.content_type == "application/json" and "Content-Type" in response.headers:
                # Some servers answer an error so, with a success status; anything else is no stream.
                await self._refuse_whole(response)
            _expect(response, streaming=True)
            yield Accepted(ignored)
            reader = _StreamReader(dispatch, self._limits.max_line_bytes, self._safe)
            while data := await response.content.readany():
                for event in reader.feed(data):
                    yield event
            for event in reader.finish():
                yield event

    async def _refuse_whole(self, response: aiohttp.ClientResponse) -> None:
        text = await read_bounded(response, self._limits.max_answer_bytes)
        # An error is raised by the reading itself.
        openai_frames.FrameReader("", OPERATION_CHAT_COMPLETION, self._safe).read(text)
        raise openai_frames.invalid("a whole answer where a stream was asked for")


class _StreamReader:
    """Bytes of a stream -> its events."""

    def __init__(self, dispatch: Dispatch, max_line_bytes: int, safe: SafeText) -> None:
        self._parser = SseParser(max_line_bytes)
        self._frames = openai_frames.FrameReader(dispatch.model, dispatch.operation, safe)

    def feed(self, data: bytes) -> Iterator[Event]:
        """What `data` completes; bytes that complete nothing still show that the worker is alive."""
        too_long = False
        try:
            events: Sequence[SseEvent] = self._parser.feed(data)
        except LineTooLong as error:
            events, too_long = error.events, True
        if not events:
            yield _ACTIVITY
        for event in events:
            yield self._read(event)
        if too_long:
            raise openai_frames.invalid("a line over the bound")

    def finish(self) -> Iterator[Event]:
        """What the end of the stream completes."""
        try:
            rest = self._parser.finish()
        except LineTooLong:
            raise openai_frames.invalid("a line over the bound") from None
        for last in rest:
            try:
                event = self._read(last)
            except WorkerFailure as failure:
                if failure.reason == FAILURE_REASON_INVALID_RESPONSE:
                    # The stream ended in the middle of an event. What came before decides how the answer ended.
                    return
                raise
            yield event

    def _read(self, event: SseEvent) -> Event:
        data, name = event
        if name and name.strip().lower() == b"error":
            raise self._frames.read_error(data)
        return _DONE if data[-1:] != b"}" and data.strip() == openai_frames.DONE else self._frames.read(data)


def _expect(response: aiohttp.ClientResponse, *, streaming: bool) -> None:
    """The declared type must be one that the answer can have; servers that declare none are believed."""
    if "Content-Type" not in response.headers:
        return
    kind = response.content_type
    fits = kind in _STREAM_TYPES if streaming else kind.endswith("json")
    if not fits:
        raise openai_frames.invalid("an answer of an unexpected type")
