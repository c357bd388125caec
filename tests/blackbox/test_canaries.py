"""Every kind of failure, with canaries in the prompt, the answer, keys and headers: nothing of them is left anywhere.

Whatever other tests leave is searched as well, at the end of the run (tests/conftest.py). Here the product is made to fail
in every way that shows what it works on, also by bugs of its own (`planted/sitecustomize.py`).
"""

import asyncio
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.blackbox import mouths
from tests.fakes.canary_words import ANSWER, PROMPT
from tests.fakes.worker import FakeWorker
from tests.harness import canaries, http_client
from tests.harness.canaries import ADMIN_TOKEN, CREDENTIAL, IDEMPOTENCY_KEY, KEY, KNOWN
from tests.harness.fake_worker import ThreadedWorker
from tests.harness.product import NAMES, Product
from tests.harness.raw_client import RawCall
from tests.harness.remains import Remains
from tests.harness.until import LOOK_EVERY_S, until_async

PLANTED = Path(__file__).parent / "planted"
CHAT = "/v1/chat/completions"
HEADER = "a header's value"
SETTINGS = {
    # Before whatever else is there.
    "PYTHONPATH": os.pathsep.join(filter(None, (str(PLANTED), os.environ.get("PYTHONPATH")))),
    "SPEEDINFER_EDGE__LIMITS__DRAIN_S": "1",
    "SPEEDINFER_ROUTER__LIMITS__RETRY_BURST": "1000000",
    "SPEEDINFER_ROUTER__LIMITS__FAILURES_TO_OPEN_CIRCUIT": "1000000",
}


def secret(kind: str) -> str:
    """A new canary."""
    text = f"canary-{uuid.uuid4()}"
    KNOWN.add(kind, text)
    return text


class Scene:
    """A product whose worker says too much, a customer, and everything that clients were told."""

    def __init__(self, folder: Path) -> None:
        self.served = ThreadedWorker(FakeWorker([*mouths.ALL]))
        self.product = Product(folder, SETTINGS)
        self.told: list[bytes] = []
        self.key = ""
        self.headers: dict[str, str] = {}

    def prepare(self) -> None:
        """A worker with credentials, prices, and a customer."""
        self.served.plays(mouths.ALL)
        worker = self.product.register({
            "worker_id": "mouth", "worker_type": "test", "runtime": "openai-compatible",
            "runtime_endpoint": self.served.worker.url, "supported_models": [*mouths.ALL],
            "runtime_config": {
                "transport": "openai", "check": "metadata", "forward_unknown_fields": True,
                "api_key": secret(CREDENTIAL), "headers": {"X-Team": secret(CREDENTIAL)},
            },
        })  # fmt: skip
        assert worker["status"] == "healthy", worker
        for model in mouths.ALL:
            if model != "has-no-price":
                self.product.price(model)
        self.key = self.product.key(self.product.account())
        self.headers = {
            "authorization": f"Bearer {self.key}",
            "x-request-id": secret(HEADER),
            "cookie": f"session={secret(HEADER)}",
            "x-anything": secret(HEADER),
            "openai-organization": secret(HEADER),
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": f"vendor={secret(HEADER)}",
        }

    async def send(self, http: httpx.AsyncClient, method: str, path: str, **options: Any) -> int:
        """One request; what is told is kept. Its status, or 0 where the answer was cut."""
        headers = self.headers | {"idempotency-key": secret(IDEMPOTENCY_KEY)} | options.pop("headers", {})
        try:
            answer = await http.request(method, path, headers=headers, **options)
        except httpx.HTTPError:
            return 0
        self.told += [answer.content, repr(answer.headers.raw).encode()]
        return answer.status_code

    def logs(self, name: str) -> str:
        """What a service wrote."""
        return self.product.log(name).read_text()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("canaries"))
    with scene.served, scene.product:
        scene.prepare()
        yield scene


def body(model: str, **more: Any) -> dict[str, Any]:
    """A request full of canaries."""
    return {
        "model": model,
        "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": PROMPT}],
        "user": PROMPT,
        "metadata": {"note": PROMPT},
        "max_tokens": 5,
    } | more


BAD: list[dict[str, Any]] = [
    {"content": f'{{"model": "says-well", "messages": "{PROMPT}'.encode()},
    {"content": b'{"model": "says-well", "messages": "' + PROMPT.encode() + b'\xff\xfe"}'},
    {"content": PROMPT.encode(), "headers": {"content-encoding": "gzip"}},
    {"content": json.dumps(body("says-well")).encode(), "headers": {"content-type": f"text/{PROMPT}"}},
    {"json": {PROMPT: PROMPT}},
    {"json": body("says-well", messages=PROMPT)},
    {"json": body("says-well", temperature=PROMPT, **{PROMPT: PROMPT})},
    {"json": body("says-well", stop=[PROMPT] * 100)},
    {"json": body(PROMPT)},
    {"json": body(PROMPT * 100)},
    {"json": body("says-well"), "headers": {"idempotency-key": PROMPT * 100}},
    {"json": body("says-well"), "params": {"api_key": PROMPT, "q": ANSWER}},
    {"json": body("has-no-price")},
    {"json": body("says-well", max_tokens=2_000_000_000, n=128)},
]

# What a model has a service log.
NOTED = {
    "fails-mid-stream": ("router", "attempt_failed"),
    "counts-oddly": ("router", "usage_inconsistent"),
    "quarantined": ("edge", "settlement_refused"),
}


async def test_bad_requests_and_wrong_keys(scene: Scene) -> None:
    async with http_client.plain(base_url=scene.product.url, timeout=60) as http:
        statuses = [await scene.send(http, "POST", CHAT, **options) for options in BAD]
        assert statuses[0] == statuses[1] == 400, statuses
        assert 500 not in statuses
        for wrong in (f"Bearer {scene.key[:-1]}", f"Bearer {scene.key}x", f"Basic {scene.key}", f"{scene.key}", PROMPT):
            assert await scene.send(http, "POST", CHAT, json=body("says-well"), headers={"authorization": wrong}) == 401
        for method, path in (("GET", f"/v1/{PROMPT}"), ("PUT", CHAT), ("GET", f"/v1/models/{PROMPT}?key={scene.key}")):
            assert await scene.send(http, method, path) in (404, 405)
    for line in (f"POST /{PROMPT} HTTP/9.9", f"{PROMPT}", f"POST {CHAT} HTTP/1.1\r\n{PROMPT} : {PROMPT}"):
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.product.ports["edge"])
        writer.write(f"{line}\r\nAuthorization: Bearer {scene.key}\r\nContent-Length: {PROMPT}\r\n\r\n".encode())
        scene.told.append(await reader.read())
        writer.close()
        await writer.wait_closed()
    assert '"event": "bad_http"' in scene.logs("edge")


@pytest.mark.parametrize("model", [name for name in mouths.ALL if name != mouths.ENDLESS])
async def test_a_worker_that_says_too_much(scene: Scene, model: str) -> None:
    async with http_client.plain(base_url=scene.product.url, timeout=60) as http:
        for stream in (True, False):
            status = await scene.send(http, "POST", CHAT, json=body(model, stream=stream))
            assert status == 200 or not (stream and model in ("says-well", *NOTED)), status
    if model in NOTED:
        name, event = NOTED[model]
        await until_async(lambda: f'"event": "{event}"' in scene.logs(name), f"{name} logs {event}")


async def test_a_request_repeated_with_other_content(scene: Scene) -> None:
    again = {"idempotency-key": secret(IDEMPOTENCY_KEY)}
    async with http_client.plain(base_url=scene.product.url, timeout=60) as http:
        assert await scene.send(http, "POST", CHAT, json=body("says-well", stream=True), headers=again) == 200
        other = body("says-well", stream=True, max_tokens=6)
        assert await scene.send(http, "POST", CHAT, json=other, headers=again) in (400, 409)


async def test_bugs_of_our_own(scene: Scene) -> None:
    async with http_client.plain(base_url=scene.product.url, timeout=60) as http:
        assert await scene.send(http, "POST", CHAT, json=body("says-well", stop=["crash-the-edge"])) == 500
        assert await scene.send(http, "POST", CHAT, json=body("crash-the-router")) >= 500
        assert await scene.send(http, "POST", CHAT, json=body("crash-billing")) >= 500
    for name, event, error in (
        ("edge", "request_failed", "ValueError"),
        ("router", "transport_failed", "KeyError"),
        ("billing", "operation_failed", "RuntimeError"),
    ):
        lines = [json.loads(line) for line in scene.logs(name).splitlines() if f'"event": "{event}"' in line]
        assert lines, name
        assert {line["exception"][0]["exc_type"] for line in lines} == {error}
        assert all(line["exception"][0]["frames"] for line in lines)


async def test_operators_who_err(scene: Scene) -> None:
    wrong = {"authorization": f"Bearer {secret(ADMIN_TOKEN)}"}
    async with http_client.plain(base_url=f"http://{scene.product.address('admin')}", timeout=60) as http:
        registration = {
            "worker_id": "wrong", "worker_type": "test", "runtime": "x", "supported_models": ["x"],
            "runtime_endpoint": f"http://user:{secret(CREDENTIAL)}@127.0.0.1:1/v1?key={secret(CREDENTIAL)}",
            "runtime_config": {
                "transport": "openai", "api_key": [secret(CREDENTIAL)], "headers": {"X": f"{secret(CREDENTIAL)}\r"},
            },
        }  # fmt: skip
        right = {"authorization": f"Bearer {scene.product.admin_token}"}
        KNOWN.add(ADMIN_TOKEN, scene.product.admin_token)
        assert await scene.send(http, "POST", "/admin/v1/workers", json=registration, headers=wrong) == 401
        assert await scene.send(http, "POST", "/admin/v1/workers", json=registration, headers=right) == 400
        bad_json = f'{{"api_key": "{secret(CREDENTIAL)}'.encode()
        assert await scene.send(http, "POST", "/admin/v1/workers", content=bad_json, headers=right) == 400
        assert await scene.send(http, "GET", "/admin/v1/workers", headers=right) == 200
    shown = await asyncio.to_thread(scene.product.run, "workers", "register", "-", stdin=json.dumps(registration))
    assert shown.code
    scene.told.append((shown.out + shown.err).encode())


async def test_billing_is_away_clients_leave_and_the_edge_goes(scene: Scene) -> None:
    product = scene.product
    async with http_client.plain(base_url=product.url, timeout=60) as http:
        left = RawCall("127.0.0.1", product.ports["edge"], scene.key, body(mouths.ENDLESS, stream=True))
        async with left:
            await left.head()
        await asyncio.to_thread(product.kill, "billing")
        assert await scene.send(http, "POST", CHAT, json=body("says-well", stream=True)) == 503
        await asyncio.to_thread(product.start, "billing")

        async with asyncio.timeout(30):
            while await scene.send(http, "POST", CHAT, json=body("says-well", stream=True)) != 200:
                await asyncio.sleep(LOOK_EVERY_S)
    async with RawCall("127.0.0.1", product.ports["edge"], scene.key, body(mouths.ENDLESS, stream=True)) as cut:
        await cut.head()
        assert await asyncio.to_thread(product.stop, "edge") == 0
    await until_async(lambda: "drain_cuts_streams" in scene.logs("edge"), "a stream was cut by the drain")
    await asyncio.to_thread(product.start, "edge")


async def test_nothing_is_left_anywhere(scene: Scene) -> None:
    """What all of the above, and one request more, left and told; the last, since it ends the product."""
    product = scene.product
    async with http_client.plain(base_url=product.url, timeout=60) as http:
        assert await scene.send(http, "POST", CHAT, json=body("says-well", stream=True)) == 200
    for name in reversed(NAMES):
        assert await asyncio.to_thread(product.stop, name) == 0, product.tail(name)
    remains = product.remains
    wanted = {f"{name}'s {what}" for name in NAMES for what in ("metrics", "cmdline", "environ")}
    assert wanted | {"/data/billing.db-wal"} <= {name for name, data in remains.seen.items() if data}
    # Where they belong they are found: the search sees.
    registry = (product.data_dir / "router" / "registry.json").read_bytes()
    assert CREDENTIAL in {hit.kind for hit in KNOWN.find(registry)}
    assert found(remains, "reservation.idempotency_key") == {IDEMPOTENCY_KEY}
    assert list(remains.leaks()) == []

    told = {hit.kind for each in scene.told for hit in KNOWN.find(each)}
    assert told <= {canaries.A_PROMPT, canaries.AN_ANSWER, HEADER}, told
    received = [(each.headers, each.body) for each in scene.served.received()]
    assert received
    sent = {hit.kind for headers, text in received for hit in KNOWN.find(json.dumps(headers).encode() + text)}
    # Its own credentials and the trace context; nothing else that a client's headers hold.
    assert not sent & {KEY, ADMIN_TOKEN, IDEMPOTENCY_KEY}
    values = " ".join(value for headers, _ in received for value in headers.values())
    assert not [name for name in ("cookie", "x-anything", "openai-organization") if scene.headers[name] in values]


def found(remains: Remains, column: str) -> set[str]:
    """The kinds of canaries in a column of the ledger."""
    return {hit.kind for name, data in remains.columns() if name == column for hit in KNOWN.find(data)}
