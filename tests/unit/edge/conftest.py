"""An edge between a scripted router and a scripted billing, and a client of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.common.settings import EdgeLimits, EdgeSettings, Settings
from services.edge.app import Edge
from services.edge.known_router import KnownRouter
from tests.fakes.scripted_billing import KEY, ScriptedBilling
from tests.fakes.scripted_router import MODEL, ScriptedRouter

ADMIN_TOKEN = "token-of-tests"


async def eventually(look: Callable[[], Any], timeout_s: float = 10.0) -> Any:
    """The first truthy answer of `look`."""
    async with asyncio.timeout(timeout_s):
        while not (found := look()):
            await asyncio.sleep(0.005)
        return found


@dataclass
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error

    @property
    def events(self) -> list[str]:
        """The data of each event; comments are left out."""
        parts = self.body.decode().split("\n\n")
        assert parts[-1] == ""
        return [part.removeprefix("data: ") for part in parts[:-1] if not part.startswith(":")]


class Stand:
    """The edge and what is around it."""

    def __init__(self, edge: Edge, router: ScriptedRouter, billing: ScriptedBilling, data_dir: Path) -> None:
        self.edge = edge
        self.router = router
        self.billing = billing
        self.data_dir = data_dir
        self.session = aiohttp.ClientSession(
            f"http://127.0.0.1:{edge.port}", headers={"Authorization": f"Bearer {KEY}"}
        )

    def body(self, **changes: Any) -> dict[str, Any]:
        return {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]} | changes

    async def post(self, body: Any = None, path: str = "/v1/chat/completions", **options: Any) -> Answer:
        if isinstance(body, bytes):
            options["data"] = body
            options["headers"] = {"Content-Type": "application/json"} | options.get("headers", {})
        else:
            options["json"] = self.body() if body is None else body
        async with self.session.post(path, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Answer:
        async with self.session.get(path, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def open_raw(
        self, body: dict[str, Any], path: str = "/v1/chat/completions"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request on a socket of its own, which the test may close or leave unread."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.edge.port)
        text = json.dumps(body).encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        await writer.drain()
        return reader, writer

    def metric(self, name: str, **labels: str) -> float:
        return self.edge.metrics.registry.get_sample_value(f"speedinfer_edge_{name}", labels) or 0.0

    def outbox_files(self) -> list[Path]:
        return sorted((self.data_dir / "edge" / "outbox").glob("*.jsonl"))


Make = Callable[..., Awaitable[Stand]]


@pytest.fixture
async def make_stand(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes stands; limits are the edge's, by name."""
    stands: list[Stand] = []

    async def make(**limits: Any) -> Stand:
        router, billing = ScriptedRouter(), ScriptedBilling()
        await router.start()
        await billing.start()
        section = EdgeSettings(
            listen="127.0.0.1:0",
            admin_listen="127.0.0.1:0",
            router_target=f"127.0.0.1:{router.port}",
            billing_target=f"127.0.0.1:{billing.port}",
            limits=EdgeLimits(**({"drain_s": 0.5} | limits)),
        )
        edge = Edge(Settings(data_dir=tmp_path, edge=section), ADMIN_TOKEN)
        await edge.start()
        stand = Stand(edge, router, billing, tmp_path)
        stands.append(stand)
        return stand

    yield make
    for stand in stands:
        stand.billing.settles.set()
        stand.billing.reserves.set()
        stand.billing.authorises.set()
        await stand.session.close()
        await stand.edge.drain()
        await stand.router.stop()
        await stand.billing.stop()


@pytest.fixture
async def stand(make_stand: Make) -> Stand:
    """A stand with the usual limits."""
    return await make_stand()


Fleet = Callable[..., Awaitable[Stand]]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Makes an edge with these routers; `relay` and limits as in the settings."""
    stands: list[tuple[Stand, tuple[ScriptedRouter, ...]]] = []

    async def make(*routers: ScriptedRouter, also: str = "", relay: bool = True, **limits: Any) -> Stand:
        billing = ScriptedBilling()
        await billing.start()
        for router in routers:
            await router.start()
        targets = ",".join([*(f"127.0.0.1:{router.port}" for router in routers), *filter(None, [also])])
        section = EdgeSettings(
            listen="127.0.0.1:0",
            admin_listen="127.0.0.1:0",
            router_target=targets,
            relay=relay,
            billing_target=f"127.0.0.1:{billing.port}",
            limits=EdgeLimits(**({"drain_s": 0.5} | limits)),
        )
        edge = Edge(Settings(data_dir=tmp_path, edge=section), ADMIN_TOKEN)
        await edge.start()
        stand = Stand(edge, routers[0], billing, tmp_path)
        stands.append((stand, routers))
        await eventually(lambda: all(each.watched and each.is_ready for each in known(stand)[: len(routers)]))
        return stand

    yield make
    for stand, routers in stands:
        await stand.session.close()
        await stand.edge.drain()
        for router in routers:
            await router.stop()
        await stand.billing.stop()


def known(stand: Stand) -> list[KnownRouter]:
    """The routers, in the order of the settings."""
    return list(stand.edge._routers.routers)
