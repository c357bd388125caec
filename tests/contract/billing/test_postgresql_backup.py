"""The restore drill: a dump made while billing works is a ledger that another billing takes and that verifies."""

import asyncio
from pathlib import Path

import pytest

from tests.contract.billing.acknowledged import Acknowledged, load
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service
from tests.contract.billing.test_audit_commands import Command

pytestmark = [
    pytest.mark.processes,
    pytest.mark.real,
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]


async def test_a_dump_of_a_working_ledger_is_restored_and_verifies(
    postgresql: Server, service: Service, client: Client, tmp_path: Path
) -> None:
    account = await client.open_account("1000")
    key = await client.key(account)
    before, meanwhile = Acknowledged(), Acknowledged()
    before.want(40)
    first = asyncio.create_task(load(client, key, before))
    await before.enough.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    kept = dict(before)
    writing = asyncio.create_task(load(client, key, meanwhile))
    backup = tmp_path / "ledger.dump"
    await asyncio.to_thread(postgresql.program, "pg_dump", "--format=custom", f"--file={backup}")
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    with postgresql.database("drill") as url:
        await asyncio.to_thread(postgresql.program, "pg_restore", "--exit-on-error", "--dbname=drill", str(backup))
        drill = Service(tmp_path / "drill", url, service.clock)
        restored = await drill.start()
        verdict = await restored.verify()
        assert verdict.ok, list(verdict.problems)
        # Everything that was acknowledged before the dump began is in it, and is answered as it was.
        for reservation_id, word in kept.items():
            if word == "SETTLED":
                settled = await client.settle(reservation_id, 7, 3)
                assert await restored.settle(reservation_id, 7, 3) == settled
        # It is a ledger to go on with: numbers, ids and prices go on where they were.
        await restored.settle(await restored.hold(key, output_limit=1), 7, 3)
        await restored.create_key((await restored.create_account("1")).account.account_id)
        assert (await restored.verify()).ok
        await drill.stop()


async def test_copies_of_a_file_are_refused_and_pg_dump_and_pg_restore_named(
    service: Service, database: str, tmp_path: Path
) -> None:
    command = Command(service.client, database, tmp_path)
    copy = tmp_path / "copy.db"
    assert "copied with pg_dump" in await command.refused("backup", str(copy), "--unverified")
    assert not copy.exists()
    copy.write_text("whatever it is")
    said = await command.refused("restore", str(copy), "--replace")
    assert "put back with pg_restore" in said
    assert "docs/guides/postgresql.md" in said
