"""Seals as billing makes them: of what changed, at their hour, with one key."""

from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import report_pb2, seal_pb2, seal_pb2_grpc

from services.billing import sealing
from tests.contract.billing.sealed_ledger import seal, seals_made, statements
from tests.contract.billing.service import ADMIN, Client, Service, status_of
from tests.harness.until import until_async

HOUR_MS = 3_600_000


async def sealed_accounts(client: Client) -> list[list[tuple[str, int]]]:
    """The accounts of each seal with their numbers of entries."""
    return [[(head.account_id, head.entries) for head in one.heads] for one in await statements(client)]


async def test_a_seal_names_what_has_changed_since_the_last_one(client: Client) -> None:
    first, second = await client.open_account("1"), await client.open_account("2")
    assert await seal(client) == [1]
    assert await seal(client) == []
    await client.credit(second, "1")
    # An account without entries has nothing to be sealed, and a price alone is something.
    await client.open_account("0")
    assert await seal(client) == [2]
    await client.set_price("3", "4")
    assert await seal(client) == [3]
    assert await sealed_accounts(client) == [[(first, 1), (second, 1)], [(second, 2)], []]
    verdict = await client.verify()
    assert (verdict.ok, verdict.seals) == (True, 3)


async def test_more_accounts_than_a_seal_holds_make_several(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_HEADS", 2)
    accounts = [await client.open_account("1") for _ in range(5)]
    # The first one's last entry is now the youngest of all.
    await client.credit(accounts[0], "1")
    assert await seal(client) == [1, 2, 3]
    assert await sealed_accounts(client) == [
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
    await until_async(lambda: seals_made(service), "a seal at its hour")
    assert (await sealed_accounts(client))[1] == [(account, 2)]
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
