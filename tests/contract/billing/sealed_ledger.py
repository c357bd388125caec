"""A small ledger with two seals, as files: what tampering tests copy, change behind billing's back, and audit."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from speedinfer.billing.v1 import seal_pb2, seal_pb2_grpc

from services.billing import chain, seal_checks, seal_export, seal_key
from services.billing.audit import audit
from services.billing.seal import Statement, read
from services.billing.store import open as stores
from services.billing.store.port import Reader
from tests.contract.billing.service import ADMIN, Client, Service


async def seal(client: Client) -> list[int]:
    """Seal now; answers the numbers of the seals that were made."""
    stub = seal_pb2_grpc.SealServiceStub(client.channel)
    return [one.number for one in (await stub.SealLedger(seal_pb2.SealLedgerRequest(), metadata=ADMIN)).seals]


async def statements(client: Client) -> list[Statement]:
    """What each seal says."""
    answers = seal_pb2_grpc.SealServiceStub(client.channel).ExportSeals(seal_pb2.ExportSealsRequest(), metadata=ADMIN)
    return [read(answer.seal.statement) async for answer in answers]


def seals_made(service: Service) -> int:
    """How many this start of billing has made."""
    return int(service.billing.metrics.registry.get_sample_value("speedinfer_billing_seals_total") or 0)


@dataclass(frozen=True)
class SealedLedger:
    """Files that nothing changes, and the ids in them. Entries of `ada`: 1 credit, 2 and 3 charges, 4 credit, 5 charge; of
    `bob`: 1 credit. Seal 1 was made after ada's third and bob's first, seal 2 after ada's fourth; ada's fifth is not sealed."""

    database: Path
    # As it was when the first seal was made.
    older: Path
    exported: Path
    public_key: Path
    ada: str
    bob: str

    def copy_to(self, folder: Path) -> Path:
        """A copy to tamper with."""
        return Path(shutil.copy(self.database, folder / "copy.db"))

    def problems(self, database: Path, *, with_exported: bool = False) -> list[str]:
        """What the audit says of a file."""
        keys = seal_key.read_public(self.public_key.read_bytes())
        with stores.open_copy(database) as reader:
            with reader.book() as book:
                found = list(audit(book, keys.verify).problems)
            if with_exported:
                exported = seal_export.seals(self.exported.read_text().splitlines())
                found += seal_checks.compare(exported, reader.seals(0, 100), keys.verify)
        return found


async def make(folder: Path) -> SealedLedger:
    """Run billing for a moment, on virtual time."""
    service = Service(folder, f"sqlite:///{folder / 'billing.db'}")
    client = await service.start()
    await client.set_price()
    await client.set_price(prompt="2", model="acme/model-2")
    ada, bob = await client.open_account("10"), await client.open_account("5")
    key = await client.key(ada)

    async def charge(prompt: int) -> None:
        service.clock.advance(1_000)
        await client.settle(await client.hold(key), prompt, 5)

    await charge(10)
    await charge(20)
    assert await seal(client) == [1]
    older = folder / "older.db"
    stores.backup(f"sqlite:///{folder / 'billing.db'}", older)
    await client.credit(ada, "1", note="a note")
    assert await seal(client) == [2]
    assert await seal(client) == []
    await charge(30)
    stub = seal_pb2_grpc.SealServiceStub(client.channel)
    public = await stub.GetSealKey(seal_pb2.GetSealKeyRequest(), metadata=ADMIN)
    database, exported, public_key = folder / "sealed.db", folder / "seals.jsonl", folder / "public.pem"
    stores.backup(f"sqlite:///{folder / 'billing.db'}", database)
    await service.stop()
    public_key.write_text(public.public_key)
    with stores.open_copy(database) as reader:
        exported.write_text("".join(map(seal_export.line, reader.seals(0, 100))))
    return SealedLedger(database, older, exported, public_key, ada, bob)


@contextmanager
def behind_its_back(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody who may write the file: triggers are taken away and put back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("COMMIT")


def recompute_chains(path: Path) -> None:
    """What somebody does who knows how chains are made: balances, chains and heads as though nothing had happened."""
    with stores.open_copy(path) as reader:
        entries, heads = _recomputed(reader)
    with behind_its_back(path) as connection:
        connection.executemany("UPDATE entry SET chain = ? WHERE number = ?", entries)
        connection.executemany("UPDATE account SET chain_head = ? WHERE account_id = ?", heads)


def _recomputed(reader: Reader) -> tuple[list[tuple[bytes, int]], list[tuple[bytes, str]]]:
    heads: dict[str, bytes] = {}
    made: list[tuple[bytes, int]] = []
    with reader.book() as book:
        legs = list(book.entries)
        for transaction in book.transactions:
            of_it = [leg for leg in legs if leg.transaction == transaction.number]
            for leg in filter(chain.is_chained, of_it):
                before = heads.get(leg.account_id) or chain.start(leg.account_id, 0, 0)
                heads[leg.account_id] = chain.link(before, transaction, of_it, leg)
                made.append((heads[leg.account_id], leg.number))
    return made, [(head, account_id) for account_id, head in heads.items()]
