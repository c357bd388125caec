"""`VerifyLedger` names the row that somebody changed behind billing's back."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.billing import sealed_ledger
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service


def behind_its_back(database: str) -> AbstractContextManager[Any]:
    """A connection of somebody who may write the database, past its triggers."""
    if database.startswith("postgresql:"):
        return Server(database).behind_its_back()
    return sealed_ledger.behind_its_back(Path(database.removeprefix("sqlite:///")))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE entry SET amount_nanos = amount_nanos + 1 WHERE number = 3", "transaction txn_2"),
        ("UPDATE entry SET balance_after_nanos = 5 WHERE number = 3", "entry ent_3"),
        ("DELETE FROM entry WHERE number = 3", "transaction txn_2: has 1 legs"),
        ("UPDATE account SET balance_nanos = balance_nanos + 1", "balance_nanos"),
        ("UPDATE account SET held_nanos = 0", "held_nanos"),
        ("UPDATE charge SET amount_nanos = 0", "transaction txn_2: charge of"),
        ("UPDATE charge SET prompt_tokens = 1", "its usage costs 6000"),
        ("UPDATE charge SET worker_id = 'w-9'", "its worker is w-1, that of its charge w-9"),
        ("UPDATE price_version SET tiers = replace(tiers, '1000000000', '2000000000')", "its usage costs 30000"),
        (
            "UPDATE reservation SET state = 3, charge_nanos = NULL WHERE state = 2",
            "is released, but its charge is charge",
        ),
        ("DELETE FROM charge", "txn_2: a charge without its record of usage"),
        ("UPDATE entry SET account_id = 'house_outside' WHERE number = 4", "entry ent_4: a charge does not touch"),
        ("DELETE FROM ledger_transaction WHERE number = 2", "its transaction txn_2 does not exist"),
        ("UPDATE entry SET account_seq = 9 WHERE number = 3", "entry ent_3"),
    ],
)
async def test_a_changed_row_is_named(service: Service, client: Client, database: str, change: str, named: str) -> None:
    key = await client.key(await client.open_account("10"))
    await client.settle(await client.hold(key), 10, 5)
    await client.hold(key)
    sound = await client.verify()
    assert (sound.ok, sound.accounts, sound.transactions, sound.entries, sound.reservations) == (True, 1, 2, 4, 2)
    with behind_its_back(database) as connection:
        connection.execute(change)
    verdict = await client.verify()
    assert not verdict.ok
    assert any(named in problem for problem in verdict.problems), list(verdict.problems)
