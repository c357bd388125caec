"""The auditor's commands: seal, export, verify against what was exported, back up and put back."""

import asyncio
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from services.billing import seal_key
from services.cli.main import app
from tests.contract.billing.sealed_ledger import behind_its_back
from tests.contract.billing.service import TOKEN, Client, Service


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Copies of this kind are SQLite's."""
    return f"sqlite:///{tmp_path / 'billing.db'}"


class Command:
    """`speedinfer` with the settings of a service."""

    def __init__(self, client: Client, database: str, data_dir: Path) -> None:
        self._environment = {
            "SPEEDINFER_BILLING__LISTEN": client.target,
            "SPEEDINFER_BILLING__DATABASE": database,
            "SPEEDINFER_DATA_DIR": str(data_dir),
            "SPEEDINFER_ADMIN_TOKEN": TOKEN,
        }

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, ("ledger", *arguments), env=self._environment)

    async def told(self, *arguments: str) -> Any:
        """The JSON value of a command that is expected to do it."""
        shown = await self.run(*arguments, "--json")
        assert shown.exit_code == 0, shown.output
        # Billing runs in this process too, and what it logs is captured with the rest.
        return json.loads(shown.stdout.splitlines()[-1])

    async def refused(self, *arguments: str) -> str:
        """What a command says that does not do it."""
        shown = await self.run(*arguments)
        assert shown.exit_code == 1, shown.output
        return f"{shown.stdout}{shown.stderr}"


@pytest.fixture
def command(client: Client, database: str, tmp_path: Path) -> Command:
    return Command(client, database, tmp_path)


@pytest.fixture
async def account(client: Client) -> str:
    account = await client.open_account("10")
    await client.settle(await client.hold(await client.key(account)), 10, 5)
    return account


async def test_seals_are_exported_and_prove_the_ledger_from_outside(
    client: Client, command: Command, account: str, tmp_path: Path
) -> None:
    assert "made with the first seal" in await command.refused("seals", "key")
    assert await command.told("seal") == {"seals": [1]}
    assert await command.told("seal") == {"seals": []}
    file, public = str(tmp_path / "seals.jsonl"), str(tmp_path / "public.pem")
    assert await command.told("seals", "export", "-o", file) == {"file": file, "seals": 1}
    told = await command.told("seals", "key", "-o", public)
    assert told["key_id"] in Path(file).read_text()
    assert "PRIVATE" not in Path(public).read_text()
    await client.credit(account, "1")
    await command.told("seal")
    shown = await command.run("seals", "export", "--after", "1")
    assert [json.loads(line)["seal"] for line in shown.stdout.splitlines()] == [2]
    verdict = await command.told("verify", "--seals", file, "--public-key", public)
    assert (verdict["ok"], verdict["seals"], verdict["accounts"]) == (True, 2, 1)

    # The same of a copy, where there is no billing and no private key.
    copy = str(tmp_path / "copy.db")
    assert (await command.told("backup", copy))["ok"]
    elsewhere = Command(client, "sqlite:///nowhere", tmp_path / "elsewhere")
    arguments = ("verify", "--copy", copy, "--seals", file, "--public-key", public)
    assert (await elsewhere.told(*arguments))["ok"]
    assert "is not known" in await elsewhere.refused("verify", "--copy", copy)
    with behind_its_back(Path(copy)) as connection:
        connection.execute("DELETE FROM seal")
    assert "seal 1: was exported, but the ledger has none of that number" in await elsewhere.refused(*arguments)


async def test_what_an_auditor_gives_is_read_with_care(
    client: Client, command: Command, account: str, tmp_path: Path
) -> None:
    await command.told("seal")
    public, text = tmp_path / "public.pem", tmp_path / "text"
    await command.told("seals", "key", "-o", str(public))
    text.write_text("no seal\n")
    empty = tmp_path / "empty"
    empty.touch()
    for arguments, said in (
        (("--seals", str(text)), "--seals needs --public-key"),
        (("--seals", str(text), "--public-key", str(public)), "line 1 is no seal"),
        (("--seals", str(empty), "--public-key", str(public)), "holds no seal"),
        (("--seals", str(tmp_path / "nothing"), "--public-key", str(public)), "cannot be read"),
        (("--public-key", str(text)), "no Ed25519 public key"),
        (("--copy", str(text)), "cannot be read as a ledger"),
    ):
        assert said in await command.refused("verify", *arguments)
    assert "name a file" in await command.refused("seals", "export", "--json")
    assert "cannot be written" in await command.refused("seals", "export", "-o", str(tmp_path / "no" / "folder"))


@dataclass(frozen=True)
class Rotated:
    """A ledger whose seal 1 is signed with an old key and seal 2 with a new one, and the public halves."""

    old: str
    new: str
    old_id: str
    new_id: str
    exported: str


@pytest.fixture
async def rotated(client: Client, command: Command, account: str, tmp_path: Path) -> Rotated:
    key, files, ids = tmp_path / "seal_key", [str(tmp_path / name) for name in ("old.pem", "new.pem")], []
    for file in files:
        key.unlink(missing_ok=True)
        seal_key.load_or_make(key)
        await client.credit(account, "1")
        await command.told("seal")
        ids.append((await command.told("seals", "key", "-o", file))["key_id"])
    exported = str(tmp_path / "seals.jsonl")
    await command.told("seals", "export", "-o", exported)
    return Rotated(*files, *ids, exported)


async def test_after_a_rotation_seals_are_proved_by_the_keys_that_were_given_and_no_others(
    service: Service, client: Client, command: Command, account: str, tmp_path: Path, rotated: Rotated
) -> None:
    both, new = ("--public-key", rotated.old, "--public-key", rotated.new), ("--public-key", rotated.new)
    copies = (str(tmp_path / f"copy-{number}.db") for number in itertools.count())
    copy = next(copies)
    assert (await command.told("backup", copy, *both))["seals"] == 2
    assert (await command.told("verify", "--seals", rotated.exported, *both))["ok"]
    for question in (("verify",), ("verify", "--copy", copy)):
        assert (await command.told(*question, *both))["ok"]
        # The old key's seal is named where only the new key is trusted, and the other way about, be it billing's own or not.
        told = await command.refused(*question, *new)
        assert f"seal 1: is signed with the key {rotated.old_id}, which is not known (known: {rotated.new_id})" in told
        assert "seal 2: is signed" not in told
        told = await command.refused(*question, "--public-key", rotated.old)
        assert f"seal 2: is signed with the key {rotated.new_id}, which is not known (known: {rotated.old_id})" in told
        assert "seal 1: is signed" not in told
    for given in ((), new):
        assert f"seal 1: is signed with the key {rotated.old_id}" in await command.refused(
            "backup", next(copies), *given
        )
    await service.stop()
    for given in ((), new):
        told = await command.refused("restore", copy, "--replace", *given)
        assert rotated.old_id in told
        assert "nothing was changed" in told
    assert (await command.told("restore", copy, "--replace", *both))["seals"] == 2
    client = await service.start()
    assert (await client.balance(account))[0] == 11_999_985_000


async def test_a_file_without_a_key_is_named_before_anything_is_copied(
    command: Command, rotated: Rotated, tmp_path: Path
) -> None:
    text, copy = tmp_path / "text", tmp_path / "copy.db"
    text.write_text("no key\n")
    for file, said in ((text, "holds no Ed25519 public key"), (tmp_path / "nothing", "cannot be read")):
        told = await command.refused("backup", str(copy), "--public-key", rotated.old, "--public-key", str(file))
        assert str(file) in told
        assert said in told
        assert not copy.exists()


async def test_a_ledger_is_put_back_by_command(
    service: Service, client: Client, command: Command, account: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    await command.told("seal")
    assert (await command.told("backup", copy))["seals"] == 1
    assert "replaces nothing" in await command.refused("backup", copy)
    await client.credit(account, "5")
    assert "another billing process" in await command.refused("restore", copy, "--replace")
    await service.stop()
    assert "--replace" in await command.refused("restore", copy)
    altered = tmp_path / "altered.db"
    altered.write_bytes(Path(copy).read_bytes())
    with behind_its_back(altered) as connection:
        connection.execute("UPDATE charge SET attempts = 9")
    assert "nothing was changed" in await command.refused("restore", str(altered), "--replace")
    told = await command.told("restore", copy, "--replace")
    assert (told["entries"], told["seals"]) == (4, 1)
    assert Path(told["put_aside"]).exists()
    client = await service.start()
    assert (await client.balance(account))[0] == 9_999_985_000
    assert (await client.verify()).ok
