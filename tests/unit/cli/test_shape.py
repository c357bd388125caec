"""JSON forms have the names that the contract lists, amounts with nine places, and null for what is absent."""

import json
import re
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp
from speedinfer.billing.v1 import access_pb2, account_pb2, key_pb2, price_pb2, report_pb2, usage_pb2
from speedinfer.common.v1 import usage_pb2 as counts_pb2
from speedinfer.router.v1 import fleet_pb2, registry_pb2

from services.cli import ledger, output, shape
from services.common import visible_text
from services.common.money import to_money

AT = Timestamp(seconds=1_770_000_000)


def test_an_account() -> None:
    message = account_pb2.Account(
        account_id="acct_1",
        name="acme",
        balance=to_money(9_999_994_600),
        held=to_money(600),
        available=to_money(9_999_994_000),
        created_at=AT,
        open_holds=1,
        limits=account_pb2.AccountLimits(
            requests_per_minute=60, monthly_spend=to_money(10**11), credit_limit=to_money(25 * 10**9)
        ),
    )
    assert shape.account(message) == {
        "account_id": "acct_1",
        "name": "acme",
        "balance": "9.999994600",
        "held": "0.000000600",
        "available": "9.999994000",
        "open_holds": 1,
        "credit_limit": "25.000000000",
        "rpm": 60,
        "tpm": None,
        "concurrency": None,
        "models": [],
        "daily_spend": None,
        "monthly_spend": "100.000000000",
        "expires_at": None,
        "created_at": "2026-02-02T02:40:00Z",
    }


def test_a_negative_balance_keeps_its_sign() -> None:
    assert shape.account(account_pb2.Account(balance=to_money(-1)))["balance"] == "-0.000000001"


def test_a_key_without_limits_has_nulls_and_no_secret() -> None:
    shown = shape.key(key_pb2.Key(key_id="key_1", account_id="acct_1", status=access_pb2.KEY_STATUS_ACTIVE))
    assert shown["status"] == "active"
    assert (shown["rpm"], shown["tpm"], shown["concurrency"], shown["expires_at"]) == (None, None, None, None)
    assert shown["models"] == []
    assert "key" not in shown


def test_a_limit_of_zero_is_not_the_absence_of_one() -> None:
    limits = key_pb2.KeyLimits(requests_per_minute=0, daily_spend=to_money(0))
    shown = shape.key(key_pb2.Key(limits=limits))
    assert shown["rpm"] == 0
    assert shown["daily_spend"] == "0.000000000"
    assert shown["monthly_spend"] is None


def test_a_price_shows_its_first_tier_at_the_top() -> None:
    message = price_pb2.PriceVersion(
        version="pv_1",
        model="acme/model-1",
        tiers=[
            price_pb2.PriceTier(prompt=to_money(200_000_000), completion=to_money(600_000_000)),
            price_pb2.PriceTier(from_prompt_tokens=128_000, prompt=to_money(400_000_000), completion=to_money(1)),
        ],
        bounds=price_pb2.ModelBounds(max_output_tokens=4096),
    )
    shown = shape.price(message)
    assert (shown["prompt"], shown["completion"], shown["cached_prompt"]) == ("0.200000000", "0.600000000", None)
    assert [tier["from_prompt_tokens"] for tier in shown["tiers"]] == [0, 128_000]
    assert shown["bounds"]["max_output_tokens"] == 4096
    assert shown["bounds"]["image_tokens"] is None


def test_an_entry_has_the_names_of_the_contract() -> None:
    message = report_pb2.Entry(
        entry_id="e1",
        request_id="r1",
        kind=report_pb2.ENTRY_KIND_LATE_CHARGE,
        amount=to_money(-5_400),
        model="acme/model-1",
        usage=counts_pb2.Usage(prompt_tokens=12, completion_tokens=5),
        booked_at=AT,
    )
    shown = shape.entry(message)
    assert {name: shown[name] for name in ("entry_id", "request_id", "kind", "amount", "model", "usage", "at")} == {
        "entry_id": "e1",
        "request_id": "r1",
        "kind": "late_charge",
        "amount": "-0.000005400",
        "model": "acme/model-1",
        "usage": {"prompt_tokens": 12, "cached_tokens": None, "completion_tokens": 5},
        "at": "2026-02-02T02:40:00Z",
    }


def test_a_credit_has_no_usage_and_no_request() -> None:
    shown = shape.entry(report_pb2.Entry(kind=report_pb2.ENTRY_KIND_CREDIT, amount=to_money(1)))
    assert (shown["usage"], shown["request_id"], shown["model"]) == (None, None, None)


def test_usage_is_that_of_the_public_route() -> None:
    message = report_pb2.GetUsageResponse(
        balance=to_money(1),
        models=[
            usage_pb2.ModelUsage(model="m", requests=2, prompt_tokens=24, completion_tokens=10, cost=to_money(10_800))
        ],
        to=AT,
    )
    shown = shape.usage(message)
    assert list(shown) == ["balance", "held", "available", "currency", "window", "models"]
    assert shown["window"] == {"from": None, "to": "2026-02-02T02:40:00Z"}
    assert shown["models"] == [
        {
            "model": "m",
            "requests": 2,
            "prompt_tokens": 24,
            "cached_tokens": 0,
            "completion_tokens": 10,
            "cost": "0.000010800",
        }
    ]


def test_a_worker_is_as_in_health_and_its_endpoint_is_for_operators() -> None:
    worker = fleet_pb2.Worker(
        worker_id="w1",
        runtime="triton",
        transport="triton",
        supported_models=["acme/model-1"],
        status=fleet_pb2.WORKER_STATUS_MISCONFIGURED,
        circuit="closed",
        last_probe=fleet_pb2.Probe(at=AT, latency_ms=1.5, error="misconfigured"),
    )
    json_format.ParseDict({"backend": "tensorrt-llm"}, worker.metadata)
    detail = registry_pb2.WorkerDetail(worker=worker, runtime_endpoint="http://triton:8000", detail="no such output")
    shown = shape.worker(worker)
    assert list(shown) == [
        *("worker_id", "worker_type", "runtime", "transport", "supported_models", "status", "circuit", "in_flight"),
        *("last_probe", "metadata"),
    ]
    assert shown["status"] == "misconfigured"
    assert shown["last_probe"] == {"at": "2026-02-02T02:40:00Z", "latency_ms": 1.5, "error": "misconfigured"}
    assert shown["metadata"] == {"backend": "tensorrt-llm"}
    assert shape.worker_detail(detail)["runtime_endpoint"] == "http://triton:8000"


def test_whole_numbers_in_free_objects_are_integers_again() -> None:
    written = {
        "weight": 2,
        "timeout": 2.5,
        "list": [1, {"deep": -3}],
        "large": 2**53,
        "text": "1",
        "yes": True,
        "no": None,
    }
    worker = fleet_pb2.Worker()
    json_format.ParseDict(written, worker.metadata)
    detail = registry_pb2.WorkerDetail(worker=worker)
    json_format.ParseDict(written, detail.runtime_config)
    shown = shape.worker_detail(detail)
    for name in ("metadata", "runtime_config"):
        assert shown[name] == written
        # 2 == 2.0, so the kinds are looked at, too.
        assert repr(sorted(shown[name].items())) == repr(sorted(written.items()))


def test_no_name_is_a_command_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x\x1b]0;pwn\x07\x1b[31mRED\x9b2J [bold]\u202e"
    output.print_text(output.table(["model"], [[name], [[name]]]))
    output.print_text(output.details({"model": name}))
    output.print_text(name)
    output.print_error(name)
    shown = "".join(capsys.readouterr())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert shown.count("xRED [bold]") == 5


def test_json_hides_and_turns_round_nothing_and_keeps_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    # The first plane but halves of pairs, which no JSON of ours can have; and those beyond that have characters of control.
    name = "".join(
        map(chr, (*range(0xD800), *range(0xE000, 0x14000), *range(0x1BC00, 0x1D200), *range(0xE0000, 0xE1000)))
    )
    output.print_json({"model": name, name: [name]})
    written = capsys.readouterr().out.removesuffix("\n")
    assert visible_text.plain(written) == written
    assert "\n" not in written
    assert json.loads(written) == {"model": name, name: [name]}
    output.print_json(["a\x9b31m", "\u202eb", "\x7f", "\U000e0041", "مرحبا بالعالم\u200d", "é"])
    assert capsys.readouterr().out == (
        '["a\\u009b31m","\\u202eb","\\u007f","\\udb40\\udc41","مرحبا بالعالم\u200d","é"]\n'
    )


def test_exported_lines_are_escaped_as_well(tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w") as file:
        ledger._write(file, ledger.Format.JSONL, iter([{"note": "\x9bm\u202e"}]))
    assert (tmp_path / "lines").read_text() == '{"note":"\\u009bm\\u202e"}\n'
