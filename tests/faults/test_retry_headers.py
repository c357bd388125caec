"""Each code of the error table through the product: whether SDKs are told not to try again, and when to come back."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fakes.scenario import Failed, Scenario
from tests.fakes.scenarios import table
from tests.fakes.scripts import Hang
from tests.harness import http_client
from tests.harness.stage import Customer, Stage
from tests.harness.until import until_async

UNPRICED = "acme/unpriced"
HUNG = Scenario("retried", (), [Hang()], Failed("client_left"), stream=False)
MANY_MIB = 33


@dataclass
class Scene:
    """Who asks, and where."""

    stage: Stage
    customer: Customer
    http: httpx.AsyncClient

    async def ask(self, key: str = "", headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
        """A request for a whole answer."""
        body = self.stage.body(table.ALL["whole"], **changes)
        return await self.http.post("/chat/completions", json=body, headers=self.headers(key) | (headers or {}))

    def headers(self, key: str = "") -> dict[str, str]:
        return {"authorization": f"Bearer {key or self.customer.key}"}

    async def play(self, name: str) -> httpx.Response:
        """What comes of a scenario of the table."""
        scenario = table.ALL[name]
        self.stage.play(scenario)
        body = self.stage.body(scenario)
        return await self.http.post(f"/{scenario.route}", json=body, headers=self.headers())

    async def beside_one(self, key: str = "", headers: dict[str, str] | None = None) -> httpx.Response:
        """The same request while it runs already."""
        self.stage.play(HUNG)
        first = asyncio.create_task(self.ask(key, headers, max_tokens=10))
        await until_async(lambda: self.stage.received(), "the first runs")
        try:
            return await self.ask(key, headers, max_tokens=10)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)


async def wrong_type(scene: Scene) -> httpx.Response:
    headers = scene.headers() | {"content-type": "text/plain"}
    return await scene.http.post("/chat/completions", content=b"{}", headers=headers)


async def too_large(scene: Scene) -> httpx.Response:
    headers = scene.headers() | {"content-type": "application/json", "content-encoding": "gzip"}
    return await scene.http.post("/chat/completions", content=gzip.compress(bytes(MANY_MIB << 20), 1), headers=headers)


async def not_allowed(scene: Scene) -> httpx.Response:
    return await scene.ask(scene.stage.product.key(scene.customer.account_id, "--models", "acme/other"))


async def poor(scene: Scene) -> httpx.Response:
    scene.stage.play(table.ALL["whole"])
    return await scene.ask(scene.stage.product.key(scene.stage.product.account("0.000000001")))


async def charged(scene: Scene) -> httpx.Response:
    scene.stage.play(table.ALL["whole"])
    name = {"idempotency-key": "paid"}
    assert (await scene.ask(headers=name)).status_code == 200
    return await scene.ask(headers=name)


async def too_often(scene: Scene) -> httpx.Response:
    scene.stage.play(table.ALL["whole"])
    key = scene.stage.product.key(scene.customer.account_id, "--rpm", "1")
    answers = [await scene.ask(key) for _ in range(3)]
    return answers[-1]


async def held(scene: Scene) -> httpx.Response:
    # Enough for one hold, and not for two.
    return await scene.beside_one(scene.stage.product.key(scene.stage.product.account("0.000025")))


async def unpriced(scene: Scene) -> httpx.Response:
    scene.stage.play(table.ALL["whole"], model=UNPRICED, worker_ids=["unpriced-1"])
    return await scene.ask(model=UNPRICED)


@dataclass(frozen=True)
class Row:
    """One answer of the table."""

    status: int
    code: str
    # SDKs are told not to try again.
    final: bool
    says_when: bool
    provoke: Callable[[Scene], Awaitable[httpx.Response]]


ROWS = {
    "malformed": Row(400, "invalid_request_error", False, False, lambda scene: scene.ask(messages="x")),
    "wrong key": Row(401, "invalid_api_key", False, False, lambda scene: scene.ask("sk-si-wrong")),
    "no credit": Row(402, "insufficient_credit", True, False, poor),
    "not allowed": Row(403, "model_not_allowed", False, False, not_allowed),
    "no model": Row(404, "model_not_found", False, False, lambda scene: scene.ask(model="acme/none")),
    "in flight": Row(
        409, "duplicate_request", False, True, lambda scene: scene.beside_one(headers={"idempotency-key": "open"})
    ),
    "charged": Row(409, "duplicate_request", True, False, charged),
    "too large": Row(413, "request_too_large", False, False, too_large),
    "not JSON": Row(415, "unsupported_media_type", False, False, wrong_type),
    "too often": Row(429, "rate_limit_exceeded", False, True, too_often),
    "held": Row(429, "holds_in_flight", False, True, held),
    "failed": Row(502, "upstream_error", False, False, lambda scene: scene.play("reset-first-whole")),
    "no usage": Row(502, "usage_missing", True, False, lambda scene: scene.play("usage-missing-whole")),
    "nonsense": Row(502, "invalid_upstream_response", True, False, lambda scene: scene.play("not-json")),
    "busy": Row(503, "overloaded", False, True, lambda scene: scene.play("status-503-whole")),
    "no price": Row(503, "model_not_priced", True, True, unpriced),
    "no token": Row(504, "upstream_timeout", False, False, lambda scene: scene.play("no-answer")),
    "total": Row(504, "upstream_timeout", True, False, lambda scene: scene.play("whole-never")),
}


@pytest.mark.parametrize("name", ROWS)
async def test_sdks_are_told_whether_and_when_to_try_again(name: str, stage: Stage, customer: Customer) -> None:
    row = ROWS[name]
    async with http_client.plain(base_url=stage.product.base_url, timeout=60) as http:
        answer = await row.provoke(Scene(stage, customer, http))
    error = answer.json()["error"]
    assert answer.status_code == row.status, error
    assert row.code in (error["code"], error["type"])
    assert answer.headers.get("x-should-retry") == ("false" if row.final else None)
    if row.says_when or answer.status_code in (429, 503):
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    else:
        assert "retry-after" not in answer.headers
    stage.product.settled(customer.account_id)
