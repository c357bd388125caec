"""Operators' commands against a billing that runs: limits of accounts, rotation, price lists."""

import asyncio
import json
from pathlib import Path
from typing import Any

from speedinfer.billing.v1 import price_pb2
from typer.testing import CliRunner, Result

from services.cli.main import app
from services.common.money import parse_usd, to_money
from tests.contract.billing.service import ADMIN, MODEL, TOKEN, Client, Service, stamp


async def run(client: Client, *arguments: str, stdin: str | None = None) -> Result:
    variables = {"SPEEDINFER_BILLING__LISTEN": client.target, "SPEEDINFER_ADMIN_TOKEN": TOKEN}
    return await asyncio.to_thread(CliRunner().invoke, app, arguments, input=stdin, env=variables)


async def told(client: Client, *arguments: str) -> Any:
    """The JSON value of a command that is expected to do it."""
    shown = await run(client, *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


async def listed(client: Client) -> list[price_pb2.PriceVersion]:
    question = price_pb2.ListPricesRequest(include_past=True)
    return list((await client.prices.ListPrices(question, metadata=ADMIN)).prices)


async def test_an_account_s_limits_are_set_changed_and_taken_away(client: Client) -> None:
    options = "--credit 1 --rpm 60 --tpm 9000 --concurrency 4 --models a,b --daily-spend 2 --monthly-spend 30"
    made = await told(
        client, "accounts", "create", "Acme", *options.split(), "--credit-limit", "0.5", "--expires", "30d"
    )
    account = made["account_id"]
    assert (made["available"], made["credit_limit"], made["models"]) == ("1.500000000", "0.500000000", ["a", "b"])
    assert made["expires_at"] is not None
    changed = await told(
        client, "accounts", "limit", account, "--rpm", "5", "--remove", "tpm,models,expires,credit-limit"
    )
    expected = {"rpm": 5, "tpm": None, "concurrency": 4, "models": [], "daily_spend": "2.000000000", "expires_at": None}
    assert {name: changed[name] for name in expected} == expected
    assert (changed["available"], changed["monthly_spend"]) == ("1.000000000", "30.000000000")
    assert await told(client, "accounts", "show", account) == {
        name: value for name, value in changed.items() if name != "entry_id"
    }


async def test_a_key_is_rotated_with_a_grace(client: Client) -> None:
    account = await client.open_account("1")
    old = await told(client, "keys", "create", "--account", account, "--rpm", "7")
    new = await told(client, "keys", "rotate", old["key_id"], "--grace", "1h")
    assert (new["replaces_key_id"], new["rpm"], new["expires_at"]) == (old["key_id"], 7, None)
    again = await run(client, "keys", "rotate", old["key_id"])
    assert again.exit_code == 1
    assert new["key_id"] in again.stderr


async def test_a_price_list_goes_out_and_comes_back(service: Service, client: Client, tmp_path: Path) -> None:
    account = await client.open_account("1")
    money = to_money(parse_usd("0.123456789"))
    tiers = [price_pb2.PriceTier(prompt=money, completion=money) for _ in range(2)]
    tiers[1].from_prompt_tokens = 1_000
    future = stamp(service.clock.wall + 86_400_000)
    await client.set_price(model="acme/tiered", tiers=tiers, effective_from=future, bounds={"image_tokens": 9})
    await client.set_price("7", "8", account_id=account, effective_from=future)
    before = await listed(client)
    for name in ("list.csv", "list.toml"):
        file = tmp_path / name
        assert (await told(client, "prices", "export", "-o", str(file)))["prices"] == 3
        # All of it stands, the version of the past too.
        assert await told(client, "prices", "import", str(file)) == {"set": [], "unchanged": 3}
        assert await listed(client) == before
    written = await run(client, "prices", "export", "--model", MODEL, "--format", "csv")
    dearer = written.stdout.replace("7.000000000", "9.000000000")
    shown = await run(client, "prices", "import", "-", "--format", "csv", stdin=dearer)
    assert (shown.exit_code, shown.stdout) == (0, "1 prices set, 1 stood already\n")
    (new,) = [one for one in await listed(client) if one not in before]
    assert (new.account_id, new.tiers[0].prompt) == (account, to_money(parse_usd("9")))
    assert await told(client, "prices", "export", "--past") == await told(client, "prices", "list", "--past")


async def test_one_wrong_line_sets_nothing_and_is_named(service: Service, client: Client, tmp_path: Path) -> None:
    before = await listed(client)
    file = tmp_path / "prices.csv"
    file.write_text(
        "model,account_id,effective_from,from_prompt_tokens,prompt,cached_prompt,completion\n"
        "acme/a,,,0,1,,2\n"
        "acme/b,,2020-01-01,0,1,,2\n"
        "acme/c,acct_none,,0,1,,2\n"
        "acme/d,,,0,1,,2\n"
        "acme/d,,,5,1,1.5,2\n"
    )
    shown = await run(client, "prices", "import", str(file))
    assert shown.exit_code == 1
    assert shown.stdout == ""
    lines = shown.stderr.removeprefix("speedinfer: ").splitlines()
    assert lines == [
        f"{file}:3: effective_from: a price cannot be set in the past",
        f"{file}:4: account_id: there is no account acct_none",
        f"{file}:6: tiers[1].cached_prompt: cached tokens may not cost more than others",
        "nothing was set",
    ]
    assert await listed(client) == before
    # Another moment for all of it mends the one line; the others are still wrong.
    at = "2027-06-01"
    shown = await run(client, "prices", "import", str(file), "--effective-from", at)
    assert "prices.csv:3" not in shown.stderr
    assert await listed(client) == before
    file.write_text(file.read_text().replace("acct_none", "").replace("1.5", "0.5"))
    done = await told(client, "prices", "import", str(file), "--effective-from", at)
    assert [one["model"] for one in done["set"]] == ["acme/a", "acme/b", "acme/c", "acme/d"]
    assert {one["effective_from"] for one in done["set"]} == {"2027-06-01T00:00:00Z"}


async def test_a_list_that_cannot_be_read_is_one_sentence(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "list.toml"
    shown = await run(client, "prices", "import", str(file))
    assert (shown.exit_code, shown.stderr) == (1, f"speedinfer: {file} cannot be read: No such file or directory\n")
    file.write_bytes(b"\xff")
    assert "is not UTF-8 at byte 0" in (await run(client, "prices", "import", str(file))).stderr
    file.write_bytes(b"#" * 1_048_577)
    assert "is larger than" in (await run(client, "prices", "import", str(file))).stderr
    file.write_text("")
    assert await told(client, "prices", "import", str(file)) == {"set": [], "unchanged": 0}
