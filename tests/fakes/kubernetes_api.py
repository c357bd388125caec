"""A Kubernetes API server that knows EndpointSlices alone: list and watch over TLS, as the real one does them.

Each change is a version of its own, and is kept for watches that come later, until `forget`; then a watch from before gets 410.
A list is in pages. What a pod's service account has in its folder is made, too.
"""

import asyncio
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from services.common import certificates

NAMESPACE, SERVICE = "models", "vllm"
PATH = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
LABEL = "kubernetes.io/service-name"
# Where answers with a status from 300 lead.
ELSEWHERE = "/elsewhere"
LIFETIME = timedelta(days=1)


def endpoint(address: str, pod: str = "", *, uid: str = "", **conditions: bool | None) -> dict[str, Any]:
    """One of a slice; `pod`: it is that pod."""
    target = {"targetRef": {"kind": "Pod", "name": pod, "namespace": NAMESPACE, "uid": uid or f"uid-{pod}"}}
    return {
        "addresses": [address],
        "conditions": {"ready": True, "serving": True, "terminating": False, **conditions},
        "nodeName": "node-1",
        **(target if pod else {}),
    }


def endpoint_slice(
    name: str, *endpoints: dict[str, Any], port: int = 8000, family: str = "IPv4", service: str = SERVICE
) -> dict[str, Any]:
    """An EndpointSlice with a port `http`, as the API server has it. It writes null for no endpoints."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL: service}},
        "addressType": family,
        "endpoints": list(endpoints) or None,
        "ports": [{"name": "metrics", "port": 9, "protocol": "TCP"}, {"name": "http", "port": port, "protocol": "TCP"}],
    }


class KubernetesApi:
    """The server. `folder` becomes that of a service account."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        authority = certificates.make_authority("cluster.test", now, LIFETIME)
        served = certificates.Authority(authority).issue_public(["127.0.0.1"], now, LIFETIME)
        self.folder = folder / "account"
        self.folder.mkdir()
        (self.folder / "ca.crt").write_bytes(authority.certificate)
        (self.folder / "namespace").write_text(NAMESPACE)
        self.rotate("token-1")
        pem = folder / "server.pem"
        pem.write_bytes(served.key + served.certificate)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(pem)
        # Requests, in order: `list` or `watch`, and what it was from.
        self.requests: list[tuple[str, str]] = []
        # What the next requests get instead of an answer: a status.
        self.failures: list[int] = []
        # Watches that run.
        self.watches: set[_Watch] = set()
        self.page = 2
        self._slices: dict[str, dict[str, Any]] = {}
        self._version = 100
        self._oldest = 0
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> "KubernetesApi":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; again at the same port after a stop."""
        app = web.Application()
        app.router.add_get(PATH, self._get)
        app.router.add_get(ELSEWHERE, self._elsewhere)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Be away: nothing listens, and what ran is cut."""
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def rotate(self, token: str) -> None:
        """From now on only this token is good, and it is in the folder."""
        self.token = token
        (self.folder / "token").write_text(token + "\n")

    def put(self, *slices: dict[str, Any]) -> None:
        """Add slices, or change them."""
        for each in slices:
            name = each["metadata"]["name"]
            kind = "MODIFIED" if name in self._slices else "ADDED"
            self._slices[name] = each
            self._changed(kind, each)

    def delete(self, name: str) -> None:
        """Take a slice out."""
        self._changed("DELETED", self._slices.pop(name))

    def bookmark(self) -> None:
        """Say that the version is another, with nothing that concerns the watches."""
        self._version += 1
        bare = {"kind": "EndpointSlice", "metadata": {"resourceVersion": str(self._version), "creationTimestamp": None}}
        self.say({"type": "BOOKMARK", "object": bare})

    def forget(self) -> None:
        """Remember no version before the present one."""
        self._version += 1
        self._oldest = self._version
        self._history.clear()

    def end_watches(self) -> None:
        """End those that run, in order."""
        for watch in set(self.watches):
            watch.lines.put_nowait(None)

    def cut_watches(self) -> None:
        """Break their connections, in the middle of an event."""
        for watch in set(self.watches):
            watch.lines.put_nowait(b'{"type": "MODI')
            watch.lines.put_nowait(ConnectionResetError())

    def say(self, event: dict[str, Any] | bytes) -> None:
        """Send this to all watches that run."""
        line = event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n"
        for watch in self.watches:
            watch.lines.put_nowait(line)

    async def asked(self, kind: str, times: int = 1) -> None:
        """Wait until there were so many requests of that kind."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: [each for each, _ in self.requests].count(kind) >= times)

    def _changed(self, kind: str, each: dict[str, Any]) -> None:
        self._version += 1
        each["metadata"]["resourceVersion"] = str(self._version)
        # As it is now, whatever becomes of it.
        event = json.loads(json.dumps({"type": kind, "object": each}))
        self._history.append((self._version, event))
        for watch in self.watches:
            if watch.service == each["metadata"]["labels"][LABEL]:
                watch.lines.put_nowait(json.dumps(event).encode() + b"\n")

    async def _get(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        kind = "watch" if query.get("watch") == "true" else "list"
        self.requests.append((kind, query.get("resourceVersion") or query.get("continue") or ""))
        async with self._news:
            self._news.notify_all()
        if self.failures:
            return _status(self.failures.pop(0))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401)
        service = query["labelSelector"].removeprefix(f"{LABEL}=")
        return await self._watch(request, service) if kind == "watch" else self._list(request, service)

    async def _elsewhere(self, request: web.Request) -> web.Response:
        self.requests.append(("elsewhere", request.headers.get("Authorization", "")))
        return _status(200)

    def _list(self, request: web.Request, service: str) -> web.Response:
        version, _, start = request.query.get("continue", f"{self._version}-0").partition("-")
        if int(version) < self._oldest:
            return _status(410)
        mine = [each for each in self._slices.values() if each["metadata"]["labels"][LABEL] == service]
        end = int(start) + min(int(request.query["limit"]), self.page)
        metadata = {"resourceVersion": version}
        if end < len(mine):
            metadata["continue"] = f"{version}-{end}"
        return web.json_response(
            {"kind": "EndpointSliceList", "metadata": metadata, "items": mine[int(start) : end] or None}
        )

    async def _watch(self, request: web.Request, service: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if since < self._oldest:
            # With the status 200, as the real one often does it.
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            await answer.write(json.dumps(gone).encode() + b"\n")
            return answer
        watch = _Watch(service)
        for version, event in self._history:
            if version > since and event["object"]["metadata"]["labels"][LABEL] == service:
                watch.lines.put_nowait(json.dumps(event).encode() + b"\n")
        self.watches.add(watch)
        try:
            while (line := await watch.lines.get()) is not None:
                if isinstance(line, Exception):
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await answer.write(line)
        except ConnectionResetError:
            # The router has left.
            pass
        finally:
            self.watches.discard(watch)
        return answer


class _Watch:
    """One that runs. None ends it."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()


def _status(code: int) -> web.Response:
    return web.json_response(
        {"kind": "Status", "status": "Failure", "code": code}, status=code, headers={"Location": ELSEWHERE}
    )
