"""The public listener: the error table, its order, headers, and the routes that are not inference."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from speedinfer.billing.v1.access_pb2 import KeyStatus
from speedinfer.billing.v1.reservation_pb2 import LimitState, Refusal, RefusalReason
from speedinfer.router.v1.fleet_pb2 import Feature, WorkerStatus
from speedinfer.router.v1.frame_pb2 import FailureReason, Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem
from yarl import URL

from services.common import apikey, money
from tests.fakes.scripted_billing import KEY
from tests.fakes.scripted_router import MODEL, accepted, data, end, failure, worker
from tests.unit.edge.conftest import Make, Stand, eventually

WHOLE = b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}'


async def well(_item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted(ignored=("cache_salt", "n\xe4me"))
    yield data(WHOLE)
    yield end()


async def test_the_order_of_refusal(stand: Stand) -> None:
    """Each request has every fault that comes later too."""
    nobody = {"Authorization": "Bearer sk-si-wrong"}
    stand.billing.models = ["acme/other"]
    both = {"Content-Type": "text/plain"} | nobody
    assert (await stand.post(b"{", headers=both)).error["code"] == "unsupported_media_type"
    assert (await stand.post(b"{", headers=nobody)).error["code"] == "invalid_api_key"
    assert (await stand.post(stand.body(model="acme/none", n=0))).error["param"] == "n"
    assert (await stand.post(stand.body(model="acme/none"))).error["code"] == "model_not_allowed"
    stand.billing.models = []
    # The second after which the key's rights are asked for again is not waited for.
    stand.edge._admission._keys._good.clear()
    assert (await stand.post(stand.body(model="acme/none"))).error["code"] == "model_not_found"
    stand.router.change([worker(status=WorkerStatus.WORKER_STATUS_UNHEALTHY)], tell=True)
    await eventually(lambda: stand.edge._routers.first.picture._key[1] == 2)
    assert (await stand.post()).error["code"] == "no_worker_available"
    assert stand.billing.calls == []


@pytest.mark.parametrize("credential", ["", "Basic x", "Bearer", "Bearer sk-si-x", f"Bearer {apikey.make_key()[0]}"])
async def test_bad_keys_are_401(stand: Stand, credential: str) -> None:
    answer = await stand.post(headers={"Authorization": credential})
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("status", [KeyStatus.KEY_STATUS_REVOKED, KeyStatus.KEY_STATUS_EXPIRED])
async def test_ended_keys_are_401(stand: Stand, status: KeyStatus.ValueType) -> None:
    stand.billing.key_status = status
    assert (await stand.post()).error["code"] == "invalid_api_key"


async def test_requests_of_one_key_share_one_authorisation(stand: Stand) -> None:
    stand.billing.authorises.clear()
    asking = [asyncio.create_task(stand.get("/v1/models")) for _ in range(20)]
    await eventually(lambda: stand.billing.authorisations)
    stand.billing.authorises.set()
    assert {answer.status for answer in await asyncio.gather(*asking)} == {200}
    assert stand.billing.authorisations == 1


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/", "GET", 404, "unknown_url"),
        ("/v1/chat", "POST", 404, "unknown_url"),
        ("/v1/chat/completions", "GET", 405, "method_not_allowed"),
        ("/v1/models", "POST", 405, "method_not_allowed"),
    ],
)
async def test_other_urls(stand: Stand, path: str, method: str, status: int, code: str) -> None:
    async with stand.session.request(method, path) as response:
        assert response.status == status
        assert response.content_type == "application/json"
        assert (await response.json())["error"]["code"] == code
        assert response.headers["server"] == "speedinfer"
        assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: sk-si-canary\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000 + b"\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_answered_in_the_envelope_and_closed(
    stand: Stand, request_text: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(request_text)
    answer = await reader.read()
    assert answer.split()[1] == b"400"
    assert b'"code":"bad_http"' in answer
    assert b"canary" not in answer
    writer.close()
    await writer.wait_closed()
    assert "canary" not in "".join(capfd.readouterr())


async def test_ids_and_other_headers(stand: Stand) -> None:
    stand.router.script = well
    stand.billing.limits = LimitState(requests_limit=10, requests_remaining=9, reset_ms=61_500)
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    headers = {"X-Client-Request-Id": "mine", "traceparent": trace, "Idempotency-Key": "once"}
    answer = await stand.post(headers=headers)
    assert answer.headers["x-client-request-id"] == "mine"
    assert answer.headers["x-request-id"] != "mine"
    assert int(answer.headers["openai-processing-ms"]) >= 0
    assert answer.headers["x-ratelimit-remaining-requests"] == "9"
    assert answer.headers["x-ratelimit-reset-requests"] == "1m1.5s"
    assert "x-ratelimit-limit-tokens" not in answer.headers
    assert answer.headers["x-speedinfer-ignored-fields"] == "cache_salt, n\\u00e4me"
    assert stand.router.items[0].context.traceparent == trace
    assert stand.billing.only.item.idempotency_key == "once"
    long = await stand.post(headers={"Idempotency-Key": "x" * 256})
    assert (long.status, long.error["param"]) == (400, "Idempotency-Key")


async def test_the_header_of_ignored_fields_stays_readable(stand: Stand) -> None:
    names = (
        "a" * 7000,
        "b,c",
        "line\nend",
        "\u00e9" * 99,
        "\U0001f600",
        " x ",
        "",
        *(f"field_{number}" for number in range(40)),
    )

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted(ignored=names)
        yield data(b'{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}')
        yield end()

    stand.router.script = script
    value = (await stand.post()).headers["x-speedinfer-ignored-fields"]
    odd = (
        "a" * 64 + "...",
        "b\\u002cc",
        "line\\u000aend",
        "\\u00e9" * 10 + "...",
        "\\ud83d\\ude00",
        "\\u0020x\\u0020",
        '""',
    )
    assert value == ", ".join((*odd, *(f"field_{number}" for number in range(9)))) + ", ..."


R = RefusalReason


@pytest.mark.parametrize(
    ("refusal", "status", "code", "headers"),
    [
        ({"reason": R.REFUSAL_REASON_INSUFFICIENT_CREDIT}, 402, "insufficient_credit", {"x-should-retry": "false"}),
        ({"reason": R.REFUSAL_REASON_MODEL_NOT_ALLOWED}, 403, "model_not_allowed", {}),
        ({"reason": R.REFUSAL_REASON_INVALID_KEY}, 401, "invalid_api_key", {}),
        (
            {"reason": R.REFUSAL_REASON_DUPLICATE_REQUEST, "other_request_id": "r1", "other_charged": True},
            409,
            "duplicate_request",
            {"x-should-retry": "false"},
        ),
        (
            {"reason": R.REFUSAL_REASON_DUPLICATE_REQUEST, "other_request_id": "r1"},
            409,
            "duplicate_request",
            {"retry-after": "1"},
        ),
        (
            {"reason": R.REFUSAL_REASON_LIMIT, "limit": "requests_per_minute", "retry_after_ms": 90_000},
            429,
            "rate_limit_exceeded",
            {"retry-after": "60"},
        ),
        (
            {"reason": R.REFUSAL_REASON_LIMIT, "limit": "daily_spend"},
            429,
            "rate_limit_exceeded",
            {"x-should-retry": "false", "retry-after": "60"},
        ),
        (
            {"reason": R.REFUSAL_REASON_HOLDS_IN_FLIGHT, "retry_after_ms": 1500},
            429,
            "holds_in_flight",
            {"retry-after": "2"},
        ),
        ({"reason": R.REFUSAL_REASON_MODEL_NOT_PRICED}, 503, "model_not_priced", {"x-should-retry": "false"}),
        ({"reason": R.REFUSAL_REASON_BUSY}, 503, "billing_unavailable", {"retry-after": "2"}),
        ({"reason": R.REFUSAL_REASON_INVALID, "field": "output_limit"}, 400, None, {}),
    ],
)
async def test_refused_holds(
    stand: Stand, refusal: dict[str, Any], status: int, code: str | None, headers: dict[str, str]
) -> None:
    stand.billing.refusal = Refusal(hold=money.to_money(5400), available=money.to_money(1), **refusal)
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (status, code)
    assert headers.items() <= {name.lower(): value for name, value in answer.headers.items()}.items()
    if status == 402:
        assert "0.000005400" in answer.error["message"]
        assert "0.000000001" in answer.error["message"]
    assert stand.router.items == []


F = FailureReason


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"reason": F.FAILURE_REASON_MODEL_NOT_FOUND}, 404, "model_not_found"),
        ({"reason": F.FAILURE_REASON_NO_WORKER}, 503, "no_worker_available"),
        ({"reason": F.FAILURE_REASON_OVERLOADED, "retry_after_ms": 3000}, 503, "overloaded"),
        ({"reason": F.FAILURE_REASON_UNSUPPORTED, "param": "n"}, 400, None),
        ({"reason": F.FAILURE_REASON_REJECTED, "http_status": 413}, 413, "request_too_large"),
        ({"reason": F.FAILURE_REASON_REJECTED, "http_status": 400, "code": "too_long"}, 400, "too_long"),
        ({"reason": F.FAILURE_REASON_REJECTED, "http_status": 302}, 400, None),
        ({"reason": F.FAILURE_REASON_UPSTREAM}, 502, "upstream_error"),
        ({"reason": F.FAILURE_REASON_INVALID_RESPONSE}, 502, "invalid_upstream_response"),
        ({"reason": F.FAILURE_REASON_TIMEOUT, "deadline": "first token"}, 504, "upstream_timeout"),
        ({"reason": F.FAILURE_REASON_TIMEOUT, "deadline": "total"}, 504, "upstream_timeout"),
        ({"reason": F.FAILURE_REASON_DRAINING}, 503, "no_worker_available"),
        ({"reason": F.FAILURE_REASON_ANSWER_TOO_LARGE}, 502, "invalid_upstream_response"),
    ],
)
async def test_failures_of_the_router(stand: Stand, fields: dict[str, Any], status: int, code: str | None) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield failure(**fields)

    stand.router.script = script
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (status, code)
    if "deadline" in fields:
        assert fields["deadline"] in answer.error["message"]
        assert answer.headers.get("x-should-retry") == ("false" if fields["deadline"] == "total" else None)
    if "retry_after_ms" in fields:
        assert answer.headers["retry-after"] == "3"
    assert stand.billing.names() == ["reserve", "release"]


async def test_a_workers_own_code_reaches_the_client_alone(stand: Stand, capfd: pytest.CaptureFixture[str]) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield failure(F.FAILURE_REASON_REJECTED, http_status=400, code="a_word_of_the_workers")

    stand.router.script = script
    assert (await stand.post()).error["code"] == "a_word_of_the_workers"
    assert stand.billing.only.cause == "invalid_request_error"
    assert b"a_word_of" not in stand.edge.metrics.text()
    assert "a_word_of" not in "".join(capfd.readouterr())


async def test_without_billing_new_work_is_refused(make_stand: Make) -> None:
    stand = await make_stand(billing_timeout_s=0.2)
    await stand.get("/v1/models")
    stand.billing.reserves.clear()
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (503, "billing_unavailable")
    # The hold may have been made after all: it is given back.
    await eventually(lambda: "release" in stand.billing.names())
    assert stand.router.items == []


async def test_a_fresh_registration_is_seen_at_once(stand: Stand) -> None:
    stand.router.script = well
    await eventually(lambda: stand.edge._routers.first.watched)
    stand.router.change([], tell=True)
    await eventually(lambda: not stand.edge._routers.first.picture.workers_of(MODEL))
    assert (await stand.post()).status == 404
    stand.router.change([worker()], tell=False)
    assert (await stand.post()).status == 200


async def test_what_no_worker_can_do_is_refused_before_money(stand: Stand) -> None:
    plain = worker()
    del plain.features[:]
    plain.features.extend([Feature.FEATURE_CHAT])
    stand.router.change([plain], tell=True)
    await eventually(lambda: stand.edge._routers.first.picture._key[1] == 2)
    answer = await stand.post(stand.body(n=2))
    assert (answer.status, answer.error["param"]) == (400, "n")
    assert stand.billing.calls == []


async def test_models(stand: Stand) -> None:
    models = (await stand.get("/v1/models")).json
    assert [model["id"] for model in models["data"]] == [MODEL]
    assert (await stand.get("/v1/models/acme/model-1")).json["id"] == MODEL
    quoted = URL(f"http://127.0.0.1:{stand.edge.port}/v1/models/acme%2Fmodel-1", encoded=True)
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session,
        session.get(quoted) as response,
    ):
        assert (await response.json())["id"] == MODEL
    assert (await stand.get("/v1/models/acme/none")).error["code"] == "model_not_found"
    assert (await stand.get("/v1/models", headers={"Authorization": ""})).status == 401


async def test_usage_and_requests(stand: Stand) -> None:
    stand.router.script = well
    request_id = (await stand.post()).headers["x-request-id"]
    usage = (await stand.get("/v1/usage?from=2026-01-01")).json
    assert usage["balance"] == "9.999994600"
    assert usage["models"][0]["cost"] == "0.000005400"
    assert (await stand.get("/v1/usage?from=never")).error["param"] == "from"
    found = (await stand.get(f"/v1/requests/{request_id}")).json
    assert (found["state"], found["outcome"], found["cost"]) == ("settled", "completed", "0.000005400")
    assert found["usage"]["total_tokens"] == 17
    assert (found["price_version"], found["attempts"]) == ("price-1", 1)
    assert (await stand.get("/v1/requests/nonsense")).status == 404


async def test_health_and_readiness(stand: Stand) -> None:
    health = await stand.get("/health")
    assert (health.status, health.json["status"]) == (200, "ok")
    assert health.json["workers"][0]["status"] == "healthy"
    assert health.json["workers"][0]["last_probe"] is None
    assert (await stand.get("/livez")).status == 200
    assert (await stand.get("/readyz")).status == 200
    down = worker("worker-2", WorkerStatus.WORKER_STATUS_MISCONFIGURED)
    stand.router.change([worker(), down], tell=False)
    assert (await stand.get("/health")).json["status"] == "degraded"
    stand.router.change([down], tell=False)
    health = await stand.get("/health")
    assert (health.status, health.json["status"]) == (503, "unavailable")
    await stand.router.stop()
    health = await stand.get("/health")
    assert (health.status, health.json["workers"]) == (503, [])
    ready = await stand.get("/readyz")
    assert (ready.status, ready.json["not_reachable"]) == (503, ["router"])


async def test_the_description_names_every_route(stand: Stand) -> None:
    described = set((await stand.get("/openapi.json")).json["paths"])
    app = stand.edge._runners[-1].app
    served = {resource.canonical for resource in app.router.resources()}
    assert described == served


async def test_admin_routes(stand: Stand) -> None:
    base = f"http://127.0.0.1:{stand.edge.admin_port}"
    registration = {
        "worker_id": "w1",
        "worker_type": "nvidia-gpu",
        "runtime": "tensorrt-llm",
        "runtime_endpoint": "http://x:8000/v1",
        "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", "max_concurrency": 4},
        "runtime_metadata": {"backend": "tensorrt-llm"},
    }
    async with aiohttp.ClientSession() as nobody:
        async with nobody.post(f"{base}/admin/v1/workers", json=registration) as response:
            assert response.status == 401
        async with nobody.get(f"{base}/metrics") as response:
            assert "speedinfer_edge_requests_total" in await response.text()
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token-of-tests"}) as operator:
        async with operator.post(f"{base}/admin/v1/workers", json=registration) as response:
            shown = await response.json()
            assert (response.status, shown["runtime_config"]["max_concurrency"]) == (200, 4)
        assert stand.router.registered[0].runtime_metadata["backend"] == "tensorrt-llm"
        async with operator.post(f"{base}/admin/v1/workers", json=registration | {"nope": 1}) as response:
            assert (await response.json())["error"]["param"] == "nope"
        async with operator.get(f"{base}/v1/models") as response:
            assert "/admin/v1/workers" in (await response.json())["error"]["message"]
        async with operator.get(f"{base}/admin/v1/workers") as response:
            assert [each["worker_id"] for each in (await response.json())["workers"]] == ["worker-1"]
        async with operator.delete(f"{base}/admin/v1/workers/none") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (404, "worker_not_found")
        async with operator.post(f"{base}/admin/v1/workers/worker-1/drain?wait_s=5") as response:
            assert (await response.json())["drained"] is True


@pytest.mark.parametrize("verb", ["GET", "DELETE", "POST"])
async def test_of_an_id_that_cannot_be_one_there_is_no_worker(stand: Stand, verb: str) -> None:
    """Such an id may be longer than the router's metadata, or hold what no message does."""
    place = URL(f"http://127.0.0.1:{stand.edge.admin_port}/admin/v1/workers")
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token-of-tests"}) as operator:
        for impossible in ("a" * 7_000, "a" * 129, "%FF", "a%20b", "%C3%A9", "a%0A"):
            url = URL(f"{place}/{impossible}{'/drain' if verb == 'POST' else ''}", encoded=True)
            async with operator.request(verb, url) as response:
                error = (await response.json())["error"]
                assert (response.status, error["code"], error["param"]) == (404, "worker_not_found", "worker_id")


async def test_a_wait_that_is_no_number_is_refused_however_long_it_is(stand: Stand) -> None:
    place = f"http://127.0.0.1:{stand.edge.admin_port}/admin/v1/workers/worker-1/drain"
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer token-of-tests"}) as operator:
        for wait_s in ("9" * 4_301, "0" * 4_301, "301", "-1", "1.5", "\u0663", ""):
            async with operator.post(place, params={"wait_s": wait_s}) as response:
                assert (response.status, (await response.json())["error"]["param"]) == (400, "wait_s"), wait_s[:9]


@pytest.mark.parametrize("token", [b"\xff", b"token-of-tests\xff", b"\xc3\xa9"])
async def test_a_token_of_other_bytes_is_a_wrong_one(stand: Stand, token: bytes) -> None:
    for port, path in ((stand.edge.admin_port, b"/admin/v1/workers"), (stand.edge.port, b"/v1/models")):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %b\r\n\r\n" % (path, token)
        )
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_holds_are_renewed_and_closed_ones_are_not(make_stand: Make) -> None:
    stand = await make_stand()
    stand.billing.lease_ms = 400
    go = asyncio.Event()

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        await go.wait()
        yield data(WHOLE)
        yield end()

    stand.router.script = script
    asking = asyncio.create_task(stand.post())
    await eventually(lambda: stand.billing.holds and stand.billing.only.renewals >= 2)
    go.set()
    assert (await asking).status == 200
    assert len(stand.edge._holds) == 0


async def test_no_key_prompt_or_answer_is_logged(stand: Stand, capfd: pytest.CaptureFixture[str]) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(b'{"secret-completion":1}')
        yield end()

    stand.router.script = script
    await stand.post(stand.body(messages=[{"role": "user", "content": "secret-prompt"}]))
    await stand.post(stand.body(messages="secret-prompt"))
    await stand.post(b"{secret-prompt")
    await stand.post(stand.body(model="a secret prompt in the wrong place"))
    text = "".join(capfd.readouterr())
    assert "secret" not in text
    assert KEY not in text
