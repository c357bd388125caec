"""Triton over HTTP: what a server says of itself, and inference where gRPC does not answer. Imported by the Triton
transport only.

Answers are bounded, redirects not followed, the environment's proxies not used, cookies not kept. Nothing here can stop a
generation: closing the connection is all that HTTP has, and Triton notices it when it writes next, if at all.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from services.common.tasks import TaskSet
from services.router.networks import EVERYWHERE, Networks
from services.router.safe_text import PLAIN, SafeText
from services.router.transport import kept_connections
from services.router.transport.kept_connections import SENT, Sent
from services.router.transport.port import Dispatch, WorkerFailure, connect_timed_out
from services.router.transport.sse_parser import LineTooLong, SseEvent, SseParser
from services.router.transport.triton_error_body import error_text
from services.router.transport.triton_errors import (
    HTTP_CODES,
    answer_too_large,
    cut_off,
    invalid_response,
    refused,
    unreachable,
)
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_tensors import InputTensor, Outputs, from_generate, from_infer
from services.router.transport.unreached import is_refused, reason

_READ_BYTES = 64 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_ERROR_BODY_TIMEOUT_S = 5.0
_END_WAIT_S = 2.0
# Metadata and config of a model; stock ones have some 30 KB.
_MAX_DESCRIPTION_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and the JSON that came with it (None where there was none)."""

    status: int
    value: Any

    @property
    def error(self) -> str:
        """What Triton says is wrong, or empty."""
        return str(self.value.get("error", "")) if isinstance(self.value, dict) else ""


class TritonHttp:
    """The HTTP front of one server."""

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Sequence[tuple[str, str]],
        connect_timeout_s: float,
        max_answer_bytes: int,
        safe: SafeText = PLAIN,
        networks: Networks = EVERYWHERE,
    ) -> None:
        self.safe = safe
        self._networks = networks
        self._base = endpoint.rstrip("/") + "/v2"
        self._headers = list(headers)
        self._connect_timeout_s = connect_timeout_s
        # `connect` also bounds the look-up of the name.
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout_s, sock_connect=connect_timeout_s)
        self._max_answer_bytes = max_answer_bytes
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._endings = TaskSet()

    async def server_ready(self) -> bool:
        """Whether the server takes requests. WorkerFailure if it cannot be reached."""
        return (await self._get("/health/ready")).status == 200

    async def model_ready(self, model: str, version: str) -> bool:
        """Whether the model does."""
        return (await self._get(f"{_path(model, version)}/ready")).status == 200

    async def metadata(self, model: str, version: str) -> Reply:
        """The model's inputs and outputs."""
        return await self._get(_path(model, version))

    async def config(self, model: str, version: str) -> Reply:
        """The loaded model's configuration, completed and derived by the server."""
        return await self._get(f"{_path(model, version)}/config")

    async def index(self) -> Mapping[str, str]:
        """The models that the server knows, each with its state ("" if it has none); empty where it does not tell."""
        reply = await self._fetch("POST", "/repository/index", b"{}")
        listed = reply.value if reply.status == 200 and isinstance(reply.value, list) else []
        entries = [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        return {
            entry["name"]: " ".join(str(entry[key]) for key in ("state", "reason") if entry.get(key))
            for entry in entries
        }

    async def infer(
        self, plan: TensorPlan, inputs: Sequence[InputTensor], dispatch: Dispatch
    ) -> AsyncIterator[Outputs]:
        """One request to a model that gives one response."""
        body = {
            "id": f"{dispatch.request_id}.{dispatch.attempt}",
            "inputs": [tensor.json() for tensor in inputs],
            "outputs": [{"name": name} for name in plan.outputs],
        }
        async with self._post(f"{_path(plan.model, plan.version)}/infer", body, dispatch) as response:
            content = await self.read(response, self._max_answer_bytes)
        yield from_infer(_loads(content))

    async def stream(
        self, plan: TensorPlan, inputs: Sequence[InputTensor], dispatch: Dispatch, datatypes: Mapping[str, str]
    ) -> AsyncIterator[Outputs | None]:
        """One request to a decoupled model by `generate_stream`, whose end is the end of the body: it has no flag for it. So a
        body that only the end of the connection ends has no end that can be told from a cut. None: the server sent something
        that completes no response, so it is alive."""
        body: dict[str, Any] = {"id": f"{dispatch.request_id}.{dispatch.attempt}"}
        for tensor in inputs:
            single = len(tensor.values) == 1 and len(tensor.shape) <= 2
            body[tensor.name] = tensor.values[0] if single else tensor.values
        # Each response is one line, bounded as a message over gRPC is: it may be a whole answer, or all the text so far.
        parser = SseParser(self._max_answer_bytes)
        async with self._post(f"{_path(plan.model, plan.version)}/generate_stream", body, dispatch) as response:
            try:
                async for data in response.content.iter_chunked(_READ_BYTES):
                    events = parser.feed(data)
                    if not events:
                        yield None
                    for event in events:
                        yield self._outputs(event, datatypes)
                for event in parser.finish():
                    yield self._outputs(event, datatypes)
                if not _ends_by_itself(response):
                    raise cut_off("HTTP: only the end of the connection ended the answer")
            except LineTooLong as error:
                for event in error.events:
                    yield self._outputs(event, datatypes)
                raise answer_too_large(self._max_answer_bytes) from None

    def see_off(self, response: aiohttp.ClientResponse) -> None:
        """Let the server end a stream that has said its last: a close that meets the end has killed servers."""
        ending = self._endings.spawn(_read_off(response), "see-off-triton")
        # Not in the coroutine, which never begins where it is cancelled first.
        ending.add_done_callback(lambda _: response.close())

    async def close(self) -> None:
        """Close the connections."""
        await self._endings.cancel()
        for session in self._sessions.values():
            await session.close()

    def _session(self, *, fresh: bool = False) -> aiohttp.ClientSession:
        """The session; with `fresh`, one that never uses a connection twice."""
        # Made at first use: aiohttp wants a running loop, and whoever builds transports need not have one.
        if fresh not in self._sessions:
            self._sessions[fresh] = aiohttp.ClientSession(
                timeout=self._timeout,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                connector=kept_connections.connector(self._networks, fresh=fresh),
            )
        return self._sessions[fresh]

    async def _get(self, path: str) -> Reply:
        return await self._fetch("GET", path, None)

    async def _fetch(self, method: str, path: str, body: bytes | None) -> Reply:
        try:
            async with self._session().request(
                method, self._base + path, data=body, allow_redirects=False, headers={"accept-encoding": "identity"}
            ) as response:
                content = await self.read(response, _MAX_DESCRIPTION_BYTES)
        except (aiohttp.ClientError, OSError) as error:
            raise self.failure(error) from None
        try:
            return Reply(response.status, orjson.loads(content) if content else None)
        except orjson.JSONDecodeError:
            return Reply(response.status, None)

    def _post(self, path: str, body: Mapping[str, Any], dispatch: Dispatch) -> "_Answer":
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        trace = {"traceparent": dispatch.traceparent, "tracestate": dispatch.tracestate}
        headers |= {name: value for name, value in trace.items() if value}
        sent = Sent()
        request = self._session(fresh=dispatch.fresh_connection).post(
            self._base + path, data=orjson.dumps(body), headers=headers, allow_redirects=False
        )
        return _Answer(request, sent, self)

    def failure(self, error: Exception, *, stale: bool = False) -> WorkerFailure:
        """What it means that no answer began. `stale`: on a kept connection that the server had closed."""
        if isinstance(error, TimeoutError):
            return connect_timed_out(self._connect_timeout_s)
        failure = unreachable(f"HTTP: {reason(error)}", not_allowed=is_refused(error))
        failure.stale_connection = stale
        return failure

    def _outputs(self, event: SseEvent, datatypes: Mapping[str, str]) -> Outputs:
        if event.name.strip().lower() == b"error":
            raise refused("", error_text(event.data), self.safe)
        frame = _loads(event.data)
        if isinstance(frame, dict) and frame.get("error") is not None:
            raise refused("", str(frame["error"]), self.safe)
        return from_generate(frame, datatypes)

    @staticmethod
    async def read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
        """The whole body. WorkerFailure if it is over the bound."""
        content = bytearray()
        async for data in response.content.iter_chunked(_READ_BYTES):
            content += data
            if len(content) > limit_bytes:
                raise answer_too_large(limit_bytes)
        return bytes(content)


class _Answer:
    """A response with a success status, as a context; anything else is a WorkerFailure, and so is an answer that breaks off
    while it is read. Leaving early drops it."""

    def __init__(self, request: Any, sent: Sent, http: TritonHttp) -> None:
        self._request, self._sent, self._http = request, sent, http

    async def __aenter__(self) -> aiohttp.ClientResponse:
        SENT.set(self._sent)
        try:
            response: aiohttp.ClientResponse = await self._request.__aenter__()
        except (aiohttp.ClientError, OSError) as error:
            raise self._http.failure(error, stale=self._sent.met_a_stale_connection(error)) from None
        self._response = response
        if response.status == 200:
            return response
        try:
            content = await _error_body(response)
        except BaseException:
            response.close()
            raise
        self._let_go(said_its_last=True)
        # An error that is the first response of a stream comes as an event, and Triton answers 400 whatever its kind.
        told = not content.startswith(b"data:")
        if response.status < 400:
            raise invalid_response(f"status {response.status}")
        raise refused(HTTP_CODES.get(response.status, "INTERNAL") if told else "", error_text(content), self._http.safe)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._let_go(said_its_last=isinstance(error, WorkerFailure))
        if isinstance(error, aiohttp.ClientError | OSError):
            raise unreachable(f"HTTP: {type(error).__name__} in the middle of an answer") from None

    def _let_go(self, *, said_its_last: bool) -> None:
        # Not `release`: what was not read to its end must not be read by the next request.
        if self._response.content.at_eof():
            self._response.release()
        elif said_its_last:
            self._http.see_off(self._response)
        else:
            self._response.close()


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """What a refusal says; of one that is too long or too slow, the beginning."""
    content = bytearray()
    with suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
            async for data in response.content.iter_chunked(_READ_BYTES):
                content += data
                if len(content) > _MAX_ERROR_BYTES:
                    break
    return bytes(content[:_MAX_ERROR_BYTES])


async def _read_off(response: aiohttp.ClientResponse) -> None:
    try:
        async with asyncio.timeout(_END_WAIT_S):
            async for _ in response.content.iter_any():
                pass
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass


def _ends_by_itself(response: aiohttp.ClientResponse) -> bool:
    """Whether the body says where it ends; aiohttp then takes no other end for one."""
    return response.content_length is not None or "chunked" in response.headers.get("transfer-encoding", "").lower()


def _path(model: str, version: str) -> str:
    base = f"/models/{quote(model, safe='')}"
    return f"{base}/versions/{version}" if version else base


def _loads(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        # Triton writes a model's bytes as they are, half a character at the end of a response as well. Those bytes become
        # lone surrogates here and bytes again in triton_tensors.py, where the other half is waited for.
        return json.loads(content.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        raise invalid_response("an answer that is not JSON") from None
