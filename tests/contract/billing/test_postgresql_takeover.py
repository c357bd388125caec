"""Billing is succeeded where nothing of it is in its data folder: the ledger is in PostgreSQL, the token set."""

from pathlib import Path

import pytest

from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Process
from tests.harness.ports import free_port

pytestmark = [pytest.mark.processes, pytest.mark.real]
USD = 1_000_000_000


async def test_the_data_folder_is_made_for_the_place_that_a_successor_takes(postgresql: Server, tmp_path: Path) -> None:
    postgresql.empty()
    data_dir, listen = tmp_path / "not" / "there", f"127.0.0.1:{free_port()}"
    first, second = Process(data_dir, postgresql.url, listen), Process(data_dir, postgresql.url, listen)
    client = await first.start()
    try:
        account = await client.open_account("10")
        await client.channel.close()
        # Only its own user may take the place.
        assert data_dir.stat().st_mode & 0o077 == 0
        try:
            client = await second.start(take_over=True)
            # The first one is told by nobody but its successor.
            assert await first.process.wait() == 0
            assert await client.balance(account) == (10 * USD, 0)
            await client.channel.close()
        finally:
            await second.kill()
    finally:
        if first.process.returncode is None:
            await first.kill()
