"""The check and the probe of a worker that speaks the OpenAI API. Only the OpenAI transport imports it.

A check claims nothing that was not seen: the server answers, lists the model, generates a token, and reports what it used.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1.fleet_pb2 import (
    FEATURE_CHAT,
    FEATURE_CHOICES,
    FEATURE_COMPLETION,
    FEATURE_EMBEDDING,
    FEATURE_UNSPECIFIED,
    Feature,
)
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_INVALID_RESPONSE,
    FAILURE_REASON_REJECTED,
    FAILURE_REASON_TIMEOUT,
    FAILURE_REASON_USAGE_MISSING,
)

from services.common import ids, json_members
from services.router.answer import Answer, Incomplete
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.openai_connection import Connection, read_bounded
from services.router.transport.port import (
    CONNECT,
    INVALID_RESPONSE,
    MISCONFIGURED,
    NOT_READY,
    TIMEOUT,
    Chunk,
    Dispatch,
    Event,
    Finding,
    WorkerFailure,
)

MAX_MODELS_BYTES = 1024 * 1024
MAX_LISTED_MODELS = 20
NO_USAGE = "reports no usage"
_ALL: frozenset[Feature.ValueType] = frozenset(Feature.values()) - {FEATURE_UNSPECIFIED}
# An answer with such a status says that the server has no such route.
_NO_ROUTE = frozenset({404, 405, 501})
_PROMPT = {
    OPERATION_CHAT_COMPLETION: ("messages", b'[{"role":"user","content":"Hi"}]'),
    OPERATION_COMPLETION: ("prompt", b'"Hi"'),
    OPERATION_EMBEDDING: ("input", b'"Hi"'),
}

Generate = Callable[[Dispatch, str, str], AsyncIterator[Event]]


@dataclass(frozen=True, slots=True)
class Learned:
    """What `generate` needs to know of the worker."""

    features: frozenset[Feature.ValueType]
    stream_options: str
    # Public model name -> the worker's own.
    models: dict[str, str]

    def model(self, public: str) -> str:
        """The worker's name for a public model."""
        return self.models.get(public, public)

    @staticmethod
    def before_check(config: OpenAiConfig, runtime: str) -> "Learned":
        """What is assumed of a worker that was not looked at yet, or of which nothing may be generated to find out."""
        options = "usage" if config.stream_options == "auto" else config.stream_options
        features = _ALL - {FEATURE_CHOICES} if runtime == "llama.cpp" else _ALL
        return Learned(features, options, dict(config.model_map))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One token tried: what it showed."""

    ok: bool
    usage: bool = False
    continuous: bool = False
    llama_cpp: bool = False
    failure: WorkerFailure | None = None


class _Wrong(Exception):
    """The look is over: this is what was found."""

    def __init__(self, error: str, detail: str) -> None:
        super().__init__(detail)
        self.finding = Finding(error, detail)


class Check:
    """One look at a worker."""

    def __init__(
        self, connection: Connection, config: OpenAiConfig, models: tuple[str, ...], runtime: str, generate: Generate
    ) -> None:
        self._connection = connection
        self._config = config
        self._models = models
        self._runtime = runtime
        self._generate = generate
        # The prompts that were tried, each with the tokens that were reported of it.
        self.prompts: list[tuple[Dispatch, int]] = []

    async def probe(self) -> Finding:
        """Up and ready?"""
        try:
            if not await self._health():
                await self._list()
        except _Wrong as wrong:
            return wrong.finding
        return Finding()

    async def run(self) -> tuple[Finding, Learned | None]:
        """Everything that the registration claims. What was learned is None where something is wrong."""
        try:
            has_health = await self._health()
            listed = await self._list()
            names = self._map(listed)
            learned = Learned.before_check(self._config, self._llama_cpp(listed))
            learned = Learned(learned.features, learned.stream_options, names)
            shown = ", ".join(list(listed)[:MAX_LISTED_MODELS])
            findings = [f"models: {shown}", f"health route: {'yes' if has_health else 'no'}"]
            warnings = [
                f"model_map names {name!r}, which is not in supported_models"
                for name in self._config.model_map
                if name not in self._models
            ]
            if self._config.check == "token":
                learned = await self._tokens(learned, findings)
        except _Wrong as wrong:
            return wrong.finding, None
        return Finding(warnings=tuple(warnings), findings=tuple(findings)), learned

    async def _health(self) -> bool:
        """Whether there is a health route; it must then say that all is well."""
        status, _ = await self._get(f"{self._connection.root}/health")
        if status in _NO_ROUTE or status in (400, 401, 403):
            return False
        if status != 200:
            raise _Wrong(NOT_READY, f"/health answers status {status}")
        return True

    async def _list(self) -> dict[str, str]:
        """The models that the worker lists, each with its owner."""
        status, body = await self._get(f"{self._connection.api}/models")
        if status in (401, 403):
            raise _Wrong(
                MISCONFIGURED, f"/v1/models answers status {status}: the worker refuses the credentials; set api_key"
            )
        if status >= 500 or status in (408, 429):
            raise _Wrong(NOT_READY, f"/v1/models answers status {status}")
        if status != 200:
            raise _Wrong(MISCONFIGURED, f"/v1/models answers status {status}: is runtime_endpoint right?")
        try:
            data = json_members.parse(body)
        except json_members.NotJson:
            raise _Wrong(INVALID_RESPONSE, "/v1/models does not answer JSON") from None
        entries = data.get("data") if isinstance(data, dict) else None
        if not isinstance(entries, list):
            raise _Wrong(INVALID_RESPONSE, "/v1/models does not answer a list of models")
        return {
            entry["id"]: str(entry.get("owned_by", ""))
            for entry in entries
            if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        }

    async def _get(self, url: str) -> tuple[int, bytes]:
        try:
            async with self._connection.get(url) as response:
                return response.status, await read_bounded(response, MAX_MODELS_BYTES)
        except WorkerFailure as failure:
            if failure.not_allowed:
                raise _Wrong(MISCONFIGURED, failure.detail) from None
            if failure.reason == FAILURE_REASON_TIMEOUT:
                raise _Wrong(TIMEOUT, failure.message) from None
            if failure.detail == aiohttp.ServerDisconnectedError.__name__:
                raise _Wrong(NOT_READY, failure.message) from None
            raise _Wrong(CONNECT, f"{failure.message} ({failure.detail})") from None

    def _map(self, listed: dict[str, str]) -> dict[str, str]:
        names: dict[str, str] = {}
        for public in self._models:
            own = self._config.model_map.get(public)
            if own is None and public not in listed and len(listed) == 1:
                # Servers that were given a directory list its name, or its path.
                own = next(iter(listed))
            names[public] = own or public
            if names[public] not in listed:
                shown = ", ".join(list(listed)[:MAX_LISTED_MODELS]) or "no model"
                raise _Wrong(MISCONFIGURED, f"model {names[public]!r} is not listed by the worker; it lists {shown}")
        return names

    def _llama_cpp(self, listed: dict[str, str]) -> str:
        return "llama.cpp" if "llamacpp" in listed.values() else self._runtime

    async def _tokens(self, learned: Learned, findings: list[str]) -> Learned:
        """Generate one token of each model, and see."""
        features = learned.features - {FEATURE_CHAT, FEATURE_COMPLETION, FEATURE_EMBEDDING}
        continuous = True
        for public in {own: public for public, own in learned.models.items()}.values():
            operation, outcome = await self._first_that_works(public, learned.model(public))
            findings.append(f"{public}: generates ({Operation.Name(operation)}), reports usage")
            continuous = continuous and outcome.continuous
            if outcome.llama_cpp:
                # Its usage is that of one choice, whatever `n` is.
                features -= {FEATURE_CHOICES}
            if operation == OPERATION_EMBEDDING:
                features |= {FEATURE_EMBEDDING}
                continue
            # A server of chats also completes plain text; the other way round there may be no template.
            features |= (
                {FEATURE_CHAT, FEATURE_COMPLETION} if operation == OPERATION_CHAT_COMPLETION else {FEATURE_COMPLETION}
            )
            if (await self._token(OPERATION_EMBEDDING, public, learned.model(public), "none")).usage:
                features |= {FEATURE_EMBEDDING}
        options = learned.stream_options
        if self._config.stream_options == "auto":
            options = "continuous" if continuous else "usage"
        findings.append(f"usage in streams: {options}")
        return Learned(features, options, learned.models)

    async def _first_that_works(self, public: str, own: str) -> tuple[Operation.ValueType, _Outcome]:
        wanted = self._config.stream_options
        refusal: WorkerFailure | None = None
        for operation in (OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING):
            options = ["continuous", "usage"] if wanted == "auto" else [wanted]
            for option in options if operation != OPERATION_EMBEDDING else ["none"]:
                outcome = await self._token(operation, public, own, option)
                if outcome.ok and outcome.usage:
                    return operation, outcome
                if outcome.ok:
                    raise _Wrong(MISCONFIGURED, f"model {own!r} {NO_USAGE}; without it nothing can be charged")
                failure = outcome.failure
                assert failure is not None, "what did not work has a reason"
                self._judge(failure, own)
                refusal = refusal or failure
                if failure.reason != FAILURE_REASON_REJECTED:
                    break
        assert refusal is not None, "something was tried"
        raise _Wrong(MISCONFIGURED, f"model {own!r} generates nothing: {refusal.message} ({refusal.detail})")

    @staticmethod
    def _judge(failure: WorkerFailure, own: str) -> None:
        """Raise where trying another way is of no use."""
        if failure.detail in ("status 401", "status 403"):
            raise _Wrong(MISCONFIGURED, f"the worker refuses the credentials ({failure.detail}); set api_key")
        if failure.reason == FAILURE_REASON_TIMEOUT:
            raise _Wrong(TIMEOUT, failure.message)
        if failure.reason == FAILURE_REASON_INVALID_RESPONSE:
            raise _Wrong(INVALID_RESPONSE, f"model {own!r}: {failure.message} ({failure.detail})")
        if failure.reason != FAILURE_REASON_REJECTED and failure.detail not in ("status 404", "status 405"):
            raise _Wrong(NOT_READY, f"model {own!r}: {failure.message} ({failure.detail})")

    async def _token(self, operation: Operation.ValueType, public: str, own: str, option: str) -> _Outcome:
        streams = operation != OPERATION_EMBEDDING
        name, value = _PROMPT[operation]
        dispatch = Dispatch(
            request_id=ids.uuid7(),
            attempt=1,
            operation=operation,
            model=public,
            stream=streams,
            members=[(name, value)],
            output_limit=1 if streams else None,
        )
        answer = Answer(operation, streams, 1)
        counts_in_stream = False
        llama_cpp = False
        events = self._generate(dispatch, own, option)
        try:
            async for event in events:
                if isinstance(event, Chunk):
                    answer.take(event)
                    counts_in_stream |= event.usage is not None and event.usage_choice is not None
                    llama_cpp |= b'"timings"' in (event.usage_frame or event.payload or b"")
        except WorkerFailure as failure:
            if not (failure.connection_lost and answer.is_complete):
                return _Outcome(False, failure=failure)
        verdict = answer.finish()
        if isinstance(verdict, Incomplete) and verdict.reason != FAILURE_REASON_USAGE_MISSING:
            return _Outcome(False, failure=WorkerFailure(verdict.reason, verdict.message, detail="incomplete answer"))
        usage = not isinstance(verdict, Incomplete)
        if not isinstance(verdict, Incomplete) and verdict.usage.prompt is not None:
            self.prompts.append((dispatch, verdict.usage.prompt))
        return _Outcome(True, usage, usage and counts_in_stream and option == "continuous", llama_cpp)
