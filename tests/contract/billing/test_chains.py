"""Chains and seals as billing makes them: from the first entry or from where older ones end, and at their hour."""

from contextlib import closing
from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import report_pb2, seal_pb2, seal_pb2_grpc

from services.billing import chain, sealing
from services.billing.seal import read
from services.billing.store import migrate
from services.billing.store import open as stores
from services.billing.store.sqlite import connect
from tests.contract.billing.sealed_ledger import seal
from tests.contract.billing.service import ADMIN, Client, Service, status_of
from tests.harness.until import until_async

HOUR_MS = 3_600_000


def ledger(service_folder: Path) -> Path:
    return service_folder / "billing.db"


def sealed_accounts(path: Path) -> list[list[tuple[str, int]]]:
    """The accounts of each seal with their numbers of entries."""
    with stores.open_copy(path) as reader:
        statements = [read(one.statement) for one in reader.seals(0, 100)]
    return [[(head.account_id, head.entries) for head in one.heads] for one in statements]


async def test_a_seal_names_what_has_changed_since_the_last_one(client: Client, tmp_path: Path) -> None:
    first, second = await client.open_account("1"), await client.open_account("2")
    assert await seal(client) == [1]
    assert await seal(client) == []
    await client.credit(second, "1")
    # An account without entries has nothing to be sealed, and a price alone is something.
    await client.open_account("0")
    assert await seal(client) == [2]
    await client.set_price("3", "4")
    assert await seal(client) == [3]
    assert sealed_accounts(ledger(tmp_path)) == [[(first, 1), (second, 1)], [(second, 2)], []]
    verdict = await client.verify()
    assert (verdict.ok, verdict.seals) == (True, 3)


async def test_more_accounts_than_a_seal_holds_make_several(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "MAX_HEADS", 2)
    accounts = [await client.open_account("1") for _ in range(5)]
    # The first one's last entry is now the youngest of all.
    await client.credit(accounts[0], "1")
    assert await seal(client) == [1, 2, 3]
    assert sealed_accounts(ledger(tmp_path)) == [
        [(accounts[1], 1), (accounts[2], 1)],
        [(accounts[3], 1), (accounts[4], 1)],
        [(accounts[0], 2)],
    ]
    assert (await client.verify()).ok


async def test_a_seal_is_made_at_its_hour_and_a_restart_does_not_put_it_off(
    service: Service, client: Client, tmp_path: Path
) -> None:
    account = await client.open_account("1")
    key = tmp_path / "seal_key"
    assert not key.exists()
    assert await seal(client) == [1]
    assert key.stat().st_mode & 0o777 == 0o600
    await client.credit(account, "1")
    service.clock.advance(HOUR_MS - 1_000)
    assert await service.billing.seal_due_in_s() == 1
    service.clock.wall -= 2 * HOUR_MS
    assert await service.billing.seal_due_in_s() == 3_600
    service.clock.wall += 2 * HOUR_MS + 1_000
    await service.stop()
    client = await service.start()
    await until_async(lambda: len(sealed_accounts(ledger(tmp_path))) == 2, "a seal at its hour")
    assert sealed_accounts(ledger(tmp_path))[1] == [(account, 2)]
    assert (await client.verify()).ok


async def test_a_key_that_is_gone_is_not_replaced(service: Service, client: Client, tmp_path: Path) -> None:
    account = await client.open_account("1")
    await seal(client)
    key = tmp_path / "seal_key"
    public = await seal_pb2_grpc.SealServiceStub(client.channel).GetSealKey(
        seal_pb2.GetSealKeyRequest(), metadata=ADMIN
    )
    key.rename(tmp_path / "elsewhere")
    await client.credit(account, "1")
    with pytest.raises(grpc.aio.AioRpcError, match="seal_key"):
        await seal(client)
    assert not key.exists()
    verdict = await client.verify()
    assert [problem.partition(",")[0] for problem in verdict.problems] == [
        f"seal 1: is signed with the key {public.key_id}"
    ]
    # Whoever has the public half needs no more.
    request = report_pb2.VerifyLedgerRequest(public_keys=public.public_key)
    assert (await client.reports.VerifyLedger(request, metadata=ADMIN)).ok
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.reports.VerifyLedger(report_pb2.VerifyLedgerRequest(public_keys="no key"), metadata=ADMIN)
    assert status_of(caught.value) == "INVALID_ARGUMENT"


async def test_seals_need_the_operators_token(client: Client) -> None:
    stub = seal_pb2_grpc.SealServiceStub(client.channel)
    for call in (
        stub.SealLedger(seal_pb2.SealLedgerRequest()),
        stub.GetSealKey(seal_pb2.GetSealKeyRequest()),
        stub.ExportSeals(seal_pb2.ExportSealsRequest()).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert status_of(caught.value) == "UNAUTHENTICATED"


async def test_older_entries_have_no_chain_and_what_follows_begins_from_them(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations = tmp_path / "migrations"
    migrations.mkdir()
    for name in ("0001_ledger.sql", "0002_account_limits.sql"):
        (migrations / name).write_bytes((migrate.FOLDER / name).read_bytes())
    with monkeypatch.context() as patched, closing(connect(ledger(tmp_path))) as connection:
        patched.setattr(migrate, "FOLDER", migrations)
        migrate.migrate(connection, 0, "here")
        for number, account_id in ((1, "acct_a"), (2, "acct_b")):
            connection.execute(
                "INSERT INTO account (account_id, kind, name, created_at_ms, balance_nanos, entries) "
                "VALUES (?, 'customer', 'n', 0, 7, 1)",
                (account_id,),
            )
            connection.execute("INSERT INTO ledger_transaction VALUES (?, 1, 0, '', 'op', '')", (number,))
            connection.execute("INSERT INTO entry VALUES (?, ?, ?, 7, 1, 7)", (2 * number - 1, number, account_id))
            connection.execute("INSERT INTO entry VALUES (?, ?, 'house_outside', -7, NULL, NULL)", (2 * number, number))
    service = Service(tmp_path, database)
    client = await service.start()
    # What it found is sealed at once.
    await until_async(lambda: len(sealed_accounts(ledger(tmp_path))) == 1, "a seal of what was there")
    await client.credit("acct_a", "1")
    assert await seal(client) == [2]
    verdict = await client.verify()
    assert verdict.ok, list(verdict.problems)
    with stores.open_copy(ledger(tmp_path)) as reader:
        first = read(reader.seals(0, 1)[0].statement)
        with reader.book() as book:
            chains = [(entry.account_id, entry.chain is not None) for entry in book.entries if entry.account_seq]
    assert first.chain_start == 4
    assert [(head.account_id, head.chain) for head in first.heads] == [
        (account_id, chain.start(account_id, 1, 7)) for account_id in ("acct_a", "acct_b")
    ]
    assert chains == [("acct_a", False), ("acct_b", False), ("acct_a", True)]
    await service.stop()
