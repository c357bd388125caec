"""The command against real services: JSON shapes that outside tests rely on, and what people see."""

import csv
import io
import json
from pathlib import Path

import pytest

from services.common.apikey import parse_key
from tests.blackbox.conftest import Customer
from tests.harness.product import Product
from tests.harness.upstream import MODEL, Upstream

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
HEALTH_KEYS = {
    *("worker_id", "worker_type", "runtime", "transport", "supported_models", "status", "circuit", "in_flight"),
    *("last_probe", "metadata"),
}


def test_accounts(product: Product) -> None:
    made = product.command("accounts", "create", "acme", "--credit", "10")
    account_id = made["account_id"]
    assert (made["name"], made["balance"], made["held"], made["available"]) == (
        "acme",
        "10.000000000",
        "0.000000000",
        "10.000000000",
    )
    assert product.command("accounts", "credit", account_id, "2.5", "--note", "invoice 7")["balance"] == "12.500000000"
    adjusted = product.command("accounts", "adjust", account_id, "-0.000000001", "--reason", "a test")
    assert adjusted["balance"] == "12.499999999"
    assert product.balance(account_id)["available"] == "12.499999999"
    assert account_id in [account["account_id"] for account in product.command("accounts", "list")]
    entries = product.entries(account_id)
    assert [(entry["kind"], entry["amount"]) for entry in entries] == [
        ("credit", "10.000000000"),
        ("credit", "2.500000000"),
        ("adjustment", "-0.000000001"),
    ]
    assert [entry["note"] for entry in entries[1:]] == ["invoice 7", "a test"]


def test_an_account_that_is_not_there_is_an_error_on_standard_error(product: Product) -> None:
    shown = product.run("accounts", "show", "acct_none", "--json")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("speedinfer: ")


def test_more_than_there_is_cannot_be_taken(product: Product) -> None:
    account_id = product.account("1")
    shown = product.run("accounts", "adjust", account_id, "-1.01", "--reason", "too much")
    assert shown.code == 1
    assert product.balance(account_id)["balance"] == "1.000000000"


def test_keys(product: Product) -> None:
    account_id = product.account()
    made = product.command(
        *("keys", "create", "--account", account_id, "--name", "ci", "--rpm", "60", "--tpm", "1000"),
        *("--concurrency", "2", "--models", "acme/model-1,acme/other", "--expires", "30d"),
    )
    presented = parse_key(made["key"])
    assert presented is not None
    assert presented.key_id == made["key_id"]
    assert (made["rpm"], made["tpm"], made["concurrency"]) == (60, 1000, 2)
    assert made["models"] == ["acme/model-1", "acme/other"]
    assert made["expires_at"]
    rotated = product.command("keys", "rotate", made["key_id"], "--grace", "1h")
    assert rotated["key"] != made["key"]
    assert (rotated["replaces_key_id"], rotated["rpm"]) == (made["key_id"], 60)
    assert product.command("keys", "revoke", made["key_id"])["status"] == "revoked"
    listed = {key["key_id"]: key for key in product.command("keys", "list", "--account", account_id)}
    assert set(listed) == {made["key_id"], rotated["key_id"]}
    assert made["key"] not in json.dumps(listed)


def test_keys_of_an_account_that_is_not_there_are_an_error(product: Product) -> None:
    assert product.command("keys", "list", "--account", product.account()) == []
    shown = product.run("keys", "list", "--account", "nosuch", "--json")
    assert (shown.code, shown.out) == (1, "")
    assert shown.err == "speedinfer: there is no account nosuch\n"


@pytest.mark.inside
def test_a_key_is_nowhere_but_in_the_answer(product: Product) -> None:
    secret = product.key(product.account())[18:]
    for path in [product.log(name) for name in ("billing", "router", "edge")] + list(product.data_dir.rglob("*")):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_prices_are_versions(product: Product) -> None:
    first = product.command(
        *("prices", "set", "acme/priced", "--prompt", "0.20", "--completion", "0.60", "--cached-prompt", "0.05"),
        *("--max-output-tokens", "2048"),
    )
    assert (first["prompt"], first["completion"], first["cached_prompt"]) == (
        "0.200000000",
        "0.600000000",
        "0.050000000",
    )
    later = product.command(
        "prices", "set", "acme/priced", "--prompt", "0.25", "--completion", "0.75", "--effective-from", "1d"
    )
    assert later["version"] != first["version"]
    # Bounds that are not given stay as they were.
    assert later["bounds"]["max_output_tokens"] == 2048
    listed = product.command("prices", "list", "--model", "acme/priced")
    assert {price["version"] for price in listed} >= {first["version"]}


def test_people_see_tiers_and_bounds_as_text(product: Product) -> None:
    shown = product.run(
        *("prices", "set", "acme/tiered", "--prompt", "0.20", "--completion", "0.60", "--max-output-tokens", "64"),
        *("--tier", "128000:0.40:1.20:0.10"),
    )
    assert shown.code == 0, shown.err
    assert (
        "from 128000 prompt tokens: prompt 0.400000000, cached prompt 0.100000000, completion 1.200000000" in shown.out
    )
    assert "max_output_tokens 64" in shown.out
    assert not set("{}'") & set(shown.out)


def test_a_cached_price_above_the_prompt_price_is_refused(product: Product) -> None:
    shown = product.run(
        "prices", "set", "acme/wrong", "--prompt", "0.2", "--completion", "0.6", "--cached-prompt", "0.21"
    )
    assert shown.code == 1
    assert shown.err


async def test_usage_is_what_the_customer_sees(upstream: Upstream, customer: Customer) -> None:
    for _ in range(3):
        assert (await customer.http.post(CHAT, json=BODY)).status_code == 200
    customer.product.settled(customer.account_id)
    of_command = customer.product.command("usage", "--account", customer.account_id)
    of_route = (await customer.http.get("/v1/usage")).json()
    assert of_command["models"] == [
        {
            "model": MODEL,
            "requests": 3,
            "prompt_tokens": 36,
            "cached_tokens": 0,
            "completion_tokens": 15,
            "cost": "0.000016200",
        }
    ]
    assert {name: of_route[name] for name in ("balance", "held", "available", "currency", "models")} == {
        name: of_command[name] for name in ("balance", "held", "available", "currency", "models")
    }


async def test_the_ledger_is_listed_exported_and_verified(
    upstream: Upstream, customer: Customer, tmp_path: Path
) -> None:
    answer = await customer.http.post(CHAT, json=BODY)
    product = customer.product
    product.settled(customer.account_id)
    credit, charge = product.entries(customer.account_id)
    assert (credit["kind"], credit["amount"]) == ("credit", "10.000000000")
    assert charge["request_id"] == answer.headers["x-request-id"]
    assert charge["usage"] == {
        "prompt_tokens": 12,
        "cached_tokens": charge["usage"]["cached_tokens"],
        "completion_tokens": 5,
    }
    assert not charge["usage"]["cached_tokens"]

    lines = list(csv.DictReader(io.StringIO(product.run("ledger", "export", "--account", customer.account_id).out)))
    assert [(line["kind"], line["amount"]) for line in lines] == [
        ("credit", "10.000000000"),
        ("charge", "-0.000005400"),
    ]
    assert lines[1]["completion_tokens"] == "5"

    file = tmp_path / "ledger.jsonl"
    told = product.command("ledger", "export", "--format", "jsonl", "--output", str(file))
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert told == {"file": str(file), "entries": len(written)}
    assert charge in written

    audit = product.command("ledger", "verify")
    assert audit["ok"]
    assert audit["problems"] == []
    assert audit["entries"] >= len(written)


async def test_workers(upstream: Upstream, customer: Customer) -> None:
    product = customer.product
    registered = product.register(upstream.registration("scripted-2"))
    assert registered["status"] == "healthy"
    listed = {worker["worker_id"]: worker for worker in product.command("workers", "list")}
    assert set(listed["scripted-2"]) == HEALTH_KEYS
    health = (await customer.http.get("/health")).json()
    assert {worker["worker_id"] for worker in health["workers"]} == set(listed)
    assert set(health["workers"][0]) == HEALTH_KEYS
    assert upstream.endpoint not in json.dumps(health)
    assert product.worker("scripted-2")["runtime_endpoint"] == upstream.endpoint
    drained = product.command("workers", "drain", "scripted-2", "--wait", "5s")
    assert drained == {"worker_id": "scripted-2", "drained": True, "in_flight": 0}
    assert product.worker("scripted-2")["status"] == "draining"
    assert product.command("workers", "remove", "scripted-2")["removed"]
    assert product.run("workers", "show", "scripted-2").code == 1


def test_a_worker_that_is_down_is_registered_and_says_so(product: Product, upstream: Upstream) -> None:
    registration = upstream.registration("down") | {"runtime_endpoint": "http://127.0.0.1:1/v1"}
    shown = product.run("workers", "register", "-", "--json", stdin=json.dumps(registration))
    assert shown.code == 0
    assert shown.json["status"] == "unhealthy"
    assert "down is unhealthy" in shown.err
    checked = product.run("workers", "check", "-", "--json", stdin=json.dumps(registration))
    assert checked.code == 1
    product.command("workers", "remove", "down")


def test_a_registration_with_an_unknown_setting_is_refused_by_name(product: Product, upstream: Upstream) -> None:
    shown = product.run("workers", "register", "-", stdin=json.dumps(upstream.registration("wrong", wieght=1)))
    assert shown.code == 1
    assert "wieght" in shown.err


def test_secrets_of_a_worker_are_not_shown(product: Product, upstream: Upstream) -> None:
    registration = upstream.registration("secretive", api_key="sk-of-the-worker", headers={"x-secret": "of-the-worker"})
    product.register(registration)
    shown = json.dumps(product.worker("secretive"))
    product.command("workers", "remove", "secretive")
    assert "of-the-worker" not in shown
    assert "***" in shown


def test_numbers_of_a_registration_come_back_as_they_were(product: Product, upstream: Upstream) -> None:
    registration = upstream.registration("numbered", connect_timeout_s=2.5, weight=3)
    registration["runtime_metadata"] = {"gpus": 8}
    product.register(registration)
    shown = product.run("workers", "show", "numbered", "--json")
    listed = product.run("workers", "list", "--json")
    product.command("workers", "remove", "numbered")
    assert '"weight":3,' in shown.out or '"weight":3}' in shown.out
    assert '"connect_timeout_s":2.5' in shown.out
    assert '"gpus":8}' in shown.out
    assert '"gpus":8}' in listed.out


def test_people_get_tables(product: Product) -> None:
    account_id = product.account()
    shown = product.run("accounts", "list")
    assert shown.code == 0
    [line] = [line for line in shown.out.splitlines() if account_id in line]
    assert "10.000000000" in line


@pytest.mark.inside
def test_a_wrong_admin_token_is_refused(product: Product, upstream: Upstream) -> None:
    for arguments in (["accounts", "list"], ["workers", "list"]):
        product.environment["SPEEDINFER_ADMIN_TOKEN"] = "wrong"
        try:
            shown = product.run(*arguments)
        finally:
            del product.environment["SPEEDINFER_ADMIN_TOKEN"]
        assert shown.code == 1
        assert "refuses the admin token" in shown.err


@pytest.mark.inside
def test_doctor_finds_nothing_wrong(product: Product) -> None:
    found = product.command("doctor")
    assert found["ok"], [check for check in found["checks"] if not check["ok"]]
    assert {"settings", "admin token", "database", "billing", "router", "edge", "worker scripted-1"} <= {
        check["check"] for check in found["checks"]
    }


@pytest.mark.inside
def test_doctor_warns_of_a_drained_worker_that_does_not_answer(product: Product, upstream: Upstream) -> None:
    product.register(upstream.registration("leaving") | {"runtime_endpoint": "http://127.0.0.1:1/v1"})
    try:
        product.command("workers", "drain", "leaving", "--wait", "5s")
        found = {check["check"]: check for check in product.command("doctor")["checks"]}
        shown = product.run("doctor")
    finally:
        product.command("workers", "remove", "leaving")
    # Nothing new goes there, so it is not wrong; but it is not passed over.
    assert shown.code == 0
    assert (found["worker leaving"]["ok"], found["worker leaving"]["warning"]) == (True, True)
    assert "draining: " in found["worker leaving"]["detail"]
    assert not found["worker scripted-1"]["warning"]
    [line] = [line for line in shown.out.splitlines() if line.startswith("worker leaving")]
    assert "warning" in line
