"""The edge as one object: its parts, its two listeners, and its end. The composition root and tests make it.

Drain, in the contract's order: not ready, no new work, running requests finish (then an error event), settlements are
delivered or on disk, connections close.
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import structlog
from aiohttp import web

from services.common import listen
from services.common.handover import Listeners, Predecessor
from services.common.settings import Settings
from services.common.tasks import TaskSet
from services.edge import chat_request, completion_request, embedding_request, http_connections, http_server, openapi
from services.edge.account_routes import AccountRoutes
from services.edge.admin_routes import AdminRoutes
from services.edge.admission import Admission
from services.edge.answer_json import answer
from services.edge.billing_client import BillingClient
from services.edge.delivery import Delivery
from services.edge.fleet_view import FleetView
from services.edge.health_routes import HealthRoutes
from services.edge.holds import Holds
from services.edge.inference import Inference
from services.edge.key_cache import KeyCache
from services.edge.metrics import Metrics
from services.edge.models_routes import ModelsRoutes
from services.edge.openai_errors import UNKNOWN_ADMIN_URL
from services.edge.orphans import Orphans
from services.edge.outbox import Outbox
from services.edge.prompt_count import PromptCounter
from services.edge.router_pool import RouterPool
from services.edge.settler import Settler

_log = structlog.get_logger(__name__)
# After the drain's bound: for the error events, and for releases that are under way.
_LAST_WORDS_S = 3.0
_LAST_SETTLEMENTS_S = 5.0
# How often one that lingers looks whether everybody has gone.
_LOOK_EVERY_S = 0.25
# Operators come in when clients have taken every connection of theirs.
_MAX_ADMIN_CONNECTIONS = 256


class Edge:
    """One edge."""

    def __init__(self, settings: Settings, admin_token: str) -> None:
        self._settings = settings
        limits = settings.edge.limits
        loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.metrics.tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
        self._tasks = TaskSet()
        self._watchers = TaskSet()
        self._routers = RouterPool(
            settings.router_targets, self.metrics, limits.buffer_bytes, relays=settings.edge.relay
        )
        self._billing = BillingClient(settings.billing_targets, limits.billing_timeout_s, self.metrics)
        self._outbox = Outbox(settings.data_dir / "edge" / "outbox", limits.max_outbox_bytes, self.metrics)
        self.metrics.watch(self._outbox)
        self._holds = Holds(self._billing)
        self._settler = Settler(
            self._billing, self._outbox, self._holds, self.metrics, self._tasks, limits.settle_wait_s
        )
        self._delivery = Delivery(self._billing, self._outbox, self._settler, self.metrics, limits.billing_timeout_s)
        self._fleet = FleetView(self._routers)
        orphans = Orphans(limits.max_orphans_per_key)
        keys = KeyCache(self._billing, limits.key_cache_s, loop.time)
        counter = PromptCounter(self.metrics, limits.count_timeout_s)
        self._admission = Admission(
            keys, self._fleet, self._routers, self._billing, self._settler, self._holds, orphans, counter, limits
        )
        self._inference = Inference(
            self._admission, self._routers, self._settler, orphans, self.metrics, self._tasks, limits
        )
        self._admin = AdminRoutes(self._routers, admin_token, self.metrics)
        channels = {
            "router": lambda: [router.client.channel for router in self._routers.routers],
            "billing": lambda: self._billing.channels,
        }
        self._health = HealthRoutes(self._admission, self._fleet, channels)
        self._runners: list[web.AppRunner] = []
        # By setting and address.
        self._servers: dict[str, http_connections.Listening] = {}
        self._keeping = http_server.Keeping()
        self.port = 0
        self.admin_port = 0

    async def start(
        self, predecessor: Predecessor | None = None, given: dict[str, list[socket.socket]] | None = None
    ) -> None:
        """Open the outbox and both listeners, or take a predecessor's, or those given. OSError or ConfigurationError."""
        given = predecessor.listeners if predecessor is not None else given or {}
        self._outbox.open()
        await self._routers.start()
        await self._billing.start()
        self._watchers.spawn(self._holds.renew(), "renew-holds")
        self._watchers.spawn(self._delivery.run(), "deliver-outbox")
        section = self._settings.edge
        # Clients last: where anything else cannot be had, none was accepted.
        self.admin_port = await self._listen(
            self._admin_app(), section.admin_listen, "edge.admin_listen", _MAX_ADMIN_CONNECTIONS, given
        )
        self.port = await self._listen(
            self._public(), section.listen, "edge.listen", section.limits.max_connections, given
        )
        _log.info("edge_listens", port=self.port, admin_port=self.admin_port)

    async def drain(self) -> None:
        """Finish what runs, then stop."""
        self._keeping.connections = False
        await self._inference.drain(self._settings.edge.limits.drain_s, _LAST_WORDS_S)
        await self._tasks.join(_LAST_WORDS_S)
        await self._watchers.cancel()
        await self._deliver_rest()
        self._close_listeners()
        for runner in self._runners:
            await runner.cleanup()
        await self._tasks.cancel()
        await self._outbox.close()
        await self._routers.close()
        await self._billing.close()

    async def _deliver_rest(self) -> None:
        try:
            async with asyncio.timeout(_LAST_SETTLEMENTS_S):
                await self._delivery.deliver_once()
        except TimeoutError:
            pass
        if len(self._outbox):
            _log.warning("settlements_left_in_outbox", count=len(self._outbox))

    def listeners(self) -> Listeners:
        """See handover.Service: ours, with whoever waits to be accepted at them, so that nobody is turned away there."""
        return {
            name: [each.fileno() for each in server.sockets] for name, server in self._servers.items() if server.sockets
        }

    async def prepare(self) -> None:
        """See handover.Service."""

    async def resume(self) -> None:
        """See handover.Service."""

    async def leave(self) -> None:
        """See handover.Service: the successor accepts at our listeners; we do no longer."""
        self._keeping.connections = False
        self._close_listeners()

    async def linger(self, stop: asyncio.Event) -> None:
        """See handover.Service. Who is connected may ask once more, since closing a connection that is kept could cross with
        a request: it is answered like any other, and the connection ends with it. Whoever has neither asked nor taken an
        answer to its end when anybody else would have been cut is not waited for."""
        limits, loop = self._settings.edge.limits, asyncio.get_running_loop()
        ran_s = loop.time()
        while not stop.is_set():
            if self._inference.running:
                ran_s = loop.time()
            elif not self._has_connections() or loop.time() > ran_s + limits.idle_connection_s + limits.reader_stall_s:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await stop.wait()

    def _has_connections(self) -> bool:
        return any(runner.server is not None and runner.server.connections for runner in self._runners)

    def _close_listeners(self) -> None:
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()

    async def _listen(
        self,
        app: web.Application,
        address: str,
        setting: str,
        max_connections: int,
        given: dict[str, list[socket.socket]],
    ) -> int:
        host, port = listen.split(address, setting)
        runner = http_connections.runner(
            app,
            self.metrics,
            max_connections=max_connections,
            idle_connection_s=self._settings.edge.limits.idle_connection_s,
            stall_s=self._settings.edge.limits.reader_stall_s,
        )
        await runner.setup()
        self._runners.append(runner)
        assert runner.server is not None, "it was set up"
        name = f"{setting} {address}"
        try:
            server = await http_connections.listen(runner.server, host, port, given.pop(name, []))
        except OSError as error:
            raise OSError(f"cannot listen on {address} ({setting}): {error.strerror}") from error
        self._servers[name] = server
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _public(self) -> web.Application:
        app = http_server.application(self.metrics, self._keeping)
        models = ModelsRoutes(self._admission, self._fleet)
        account = AccountRoutes(self._admission, self._billing)
        _add(app, "POST", "/v1/chat/completions", self._inference.handler(chat_request.check))
        _add(app, "POST", "/v1/completions", self._inference.handler(completion_request.check))
        _add(app, "POST", "/v1/embeddings", self._inference.handler(embedding_request.check))
        _add(app, "GET", "/v1/models", models.all)
        _add(app, "GET", "/v1/models/{model:.+}", models.get)
        _add(app, "GET", "/v1/usage", account.usage)
        _add(app, "GET", "/v1/requests/{request_id}", account.request)
        _add(app, "GET", "/health", self._health.health)
        _add(app, "GET", "/livez", self._health.live)
        _add(app, "GET", "/readyz", self._health.ready)
        _add(app, "GET", "/openapi.json", _describe)
        return app

    def _admin_app(self) -> web.Application:
        app = http_server.application(self.metrics, self._keeping, UNKNOWN_ADMIN_URL)
        _add(app, "POST", "/admin/v1/workers", self._admin.register)
        _add(app, "GET", "/admin/v1/workers", self._admin.list_all)
        _add(app, "GET", "/admin/v1/workers/{worker_id}", self._admin.get)
        _add(app, "DELETE", "/admin/v1/workers/{worker_id}", self._admin.remove)
        _add(app, "POST", "/admin/v1/workers/{worker_id}/drain", self._admin.drain)
        _add(app, "GET", "/metrics", self._admin.metrics)
        # Of this process, where several share the public address.
        _add(app, "GET", "/livez", self._health.live)
        _add(app, "GET", "/readyz", self._health.ready)
        return app


def _add(app: web.Application, method: str, path: str, handler: Any) -> None:
    app.router.add_route(method, path, handler, expect_handler=http_server.expect)
    if method == "GET":
        app.router.add_route("HEAD", path, handler, expect_handler=http_server.expect)


async def _describe(_request: web.Request) -> web.Response:
    return answer(openapi.DOCUMENT)
