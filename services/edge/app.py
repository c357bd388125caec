"""The edge as one object: its parts, its two listeners, and its end. The composition root and tests make it.

Drain, in the contract's order: not ready, no new work, running requests finish (then an error event), settlements are
delivered or on disk, connections close.
"""

import asyncio
from typing import Any

import structlog
from aiohttp import web

from services.common import listen
from services.common.settings import Settings
from services.common.tasks import TaskSet
from services.edge import chat_request, completion_request, embedding_request, http_server, openapi
from services.edge.account_routes import AccountRoutes
from services.edge.admin_routes import AdminRoutes
from services.edge.admission import Admission
from services.edge.answer_json import answer
from services.edge.billing_client import BillingClient
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
from services.edge.router_client import RouterClient
from services.edge.settler import Settler

_log = structlog.get_logger(__name__)
# After the drain's bound: for the error events, and for releases that are under way.
_LAST_WORDS_S = 3.0
_LAST_SETTLEMENTS_S = 5.0


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
        self._router = RouterClient(settings.router_target)
        self._billing = BillingClient(settings.billing_target, limits.billing_timeout_s)
        self._outbox = Outbox(settings.data_dir / "edge" / "outbox", limits.max_outbox_bytes)
        self._holds = Holds(self._billing)
        self._settler = Settler(
            self._billing, self._outbox, self._holds, self.metrics, self._tasks, limits.settle_wait_s
        )
        self._fleet = FleetView(self._router)
        orphans = Orphans(limits.max_orphans_per_key)
        keys = KeyCache(self._billing, limits.key_cache_s, loop.time)
        self._admission = Admission(
            keys, self._fleet, self._router, self._billing, self._settler, self._holds, orphans, limits
        )
        self._inference = Inference(
            self._admission, self._router, self._settler, orphans, self.metrics, self._tasks, limits
        )
        self._admin = AdminRoutes(self._router, admin_token, self.metrics)
        self._runners: list[web.AppRunner] = []
        self.port = 0
        self.admin_port = 0

    async def start(self) -> None:
        """Open the outbox and both listeners. OSError or ConfigurationError says why not."""
        self._outbox.open()
        self._watchers.spawn(self._fleet.watch(), "watch-fleet")
        self._watchers.spawn(self._holds.renew(), "renew-holds")
        self._watchers.spawn(self._settler.deliver(), "deliver-outbox")
        section = self._settings.edge
        self.port = await self._listen(self._public(), section.listen, "edge.listen")
        self.admin_port = await self._listen(self._admin_app(), section.admin_listen, "edge.admin_listen")
        _log.info("edge_listens", port=self.port, admin_port=self.admin_port)

    async def drain(self) -> None:
        """Finish what runs, then stop."""
        await self._inference.drain(self._settings.edge.limits.drain_s, _LAST_WORDS_S)
        await self._tasks.join(_LAST_WORDS_S)
        await self._watchers.cancel()
        await self._deliver_rest()
        for runner in self._runners:
            await runner.cleanup()
        await self._tasks.cancel()
        await self._outbox.close()
        await self._router.close()
        await self._billing.close()

    async def _deliver_rest(self) -> None:
        try:
            async with asyncio.timeout(_LAST_SETTLEMENTS_S):
                await self._settler.deliver_once()
        except TimeoutError:
            pass
        if len(self._outbox):
            _log.warning("settlements_left_in_outbox", count=len(self._outbox))

    async def _listen(self, app: web.Application, address: str, setting: str) -> int:
        host, port = listen.split(address, setting)
        runner = http_server.runner(app)
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, host, port, backlog=1024).start()
        except OSError as error:
            raise OSError(f"cannot listen on {address} ({setting}): {error.strerror}") from error
        bound: int = runner.addresses[0][1]
        return bound

    def _public(self) -> web.Application:
        app = http_server.application(self.metrics)
        models = ModelsRoutes(self._admission, self._fleet)
        account = AccountRoutes(self._admission, self._billing)
        channels = {"router": self._router.channel, "billing": self._billing.channel}
        health = HealthRoutes(self._admission, self._fleet, channels)
        _add(app, "POST", "/v1/chat/completions", self._inference.handler(chat_request.check))
        _add(app, "POST", "/v1/completions", self._inference.handler(completion_request.check))
        _add(app, "POST", "/v1/embeddings", self._inference.handler(embedding_request.check))
        _add(app, "GET", "/v1/models", models.all)
        _add(app, "GET", "/v1/models/{model:.+}", models.get)
        _add(app, "GET", "/v1/usage", account.usage)
        _add(app, "GET", "/v1/requests/{request_id}", account.request)
        _add(app, "GET", "/health", health.health)
        _add(app, "GET", "/livez", health.live)
        _add(app, "GET", "/readyz", health.ready)
        _add(app, "GET", "/openapi.json", _describe)
        return app

    def _admin_app(self) -> web.Application:
        app = http_server.application(self.metrics, UNKNOWN_ADMIN_URL)
        _add(app, "POST", "/admin/v1/workers", self._admin.register)
        _add(app, "GET", "/admin/v1/workers", self._admin.list_all)
        _add(app, "GET", "/admin/v1/workers/{worker_id}", self._admin.get)
        _add(app, "DELETE", "/admin/v1/workers/{worker_id}", self._admin.remove)
        _add(app, "POST", "/admin/v1/workers/{worker_id}/drain", self._admin.drain)
        _add(app, "GET", "/metrics", self._admin.metrics)
        return app


def _add(app: web.Application, method: str, path: str, handler: Any) -> None:
    app.router.add_route(method, path, handler, expect_handler=http_server.expect)
    if method == "GET":
        app.router.add_route("HEAD", path, handler, expect_handler=http_server.expect)


async def _describe(_request: web.Request) -> web.Response:
    return answer(openapi.DOCUMENT)
