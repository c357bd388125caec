"""Every edit of the database that billing did not make is named by the audit, by its row: a corpus of edits."""

from pathlib import Path

import pytest

from services.billing import seal_key
from services.billing.seal import read, sealed
from services.billing.store import open as stores
from tests.contract.billing import sealed_ledger
from tests.contract.billing.sealed_ledger import SealedLedger, behind_its_back, recompute_chains


@pytest.fixture(scope="module")
async def ledger(tmp_path_factory: pytest.TempPathFactory) -> SealedLedger:
    return await sealed_ledger.make(tmp_path_factory.mktemp("ledger"))


# Entries: 1, 2 ada's credit; 3, 4 bob's; 5, 6 and 7, 8 ada's charges; 9, 10 her second credit; 11, 12 her third charge.


def test_an_untouched_ledger_adds_up(ledger: SealedLedger) -> None:
    assert ledger.problems(ledger.database, with_exported=True) == []
    assert ledger.problems(ledger.older) == []


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        # Changed amounts: one leg; both; the balances after it too.
        (
            "UPDATE entry SET amount_nanos = amount_nanos + 1 WHERE number = 5",
            "entry ent_5 of account {ada}: its chain",
        ),
        (
            "UPDATE entry SET amount_nanos = amount_nanos + 1 WHERE number = 6",
            "entry ent_5 of account {ada}: its chain",
        ),
        (
            "UPDATE entry SET amount_nanos = amount_nanos * 2 WHERE number IN (1, 2); "
            "UPDATE entry SET balance_after_nanos = balance_after_nanos + 10000000000 WHERE account_id = '{ada}'; "
            "UPDATE account SET balance_nanos = balance_nanos + 10000000000 WHERE account_id = '{ada}'",
            "entry ent_1 of account {ada}: its chain",
        ),
        # Money moved from one customer to another.
        ("UPDATE entry SET account_id = '{bob}', account_seq = 2 WHERE number = 9", "entry ent_9 of account {bob}"),
        # Words and moments of a transaction.
        ("UPDATE ledger_transaction SET note = 'another' WHERE number = 5", "entry ent_9 of account {ada}: its chain"),
        ("UPDATE ledger_transaction SET booked_at_ms = 1 WHERE number = 5", "entry ent_9 of account {ada}: its chain"),
        ("UPDATE ledger_transaction SET kind = 5 WHERE number = 5", "entry ent_9 of account {ada}: its chain"),
        ("UPDATE ledger_transaction SET operation_id = '' WHERE number = 5", "entry ent_9 of account {ada}: its chain"),
        # The record of usage: what no figure depends on, and the month that it counts in.
        (
            "UPDATE charge SET key_id = 'another' WHERE transaction_number = 3",
            "entry ent_5 of account {ada}: its chain",
        ),
        ("UPDATE charge SET attempts = 2 WHERE transaction_number = 3", "entry ent_5 of account {ada}: its chain"),
        ("UPDATE charge SET booked_at_ms = 1 WHERE transaction_number = 3", "transaction txn_3: was booked at"),
        # Deleted rows.
        (
            "DELETE FROM entry WHERE number = 7",
            "entry ent_9 of account {ada}: is number 4 of the account, 3 is expected",
        ),
        ("DELETE FROM charge WHERE transaction_number = 4", "txn_4: a charge without its record of usage"),
        ("DELETE FROM ledger_transaction WHERE number = 4", "entry ent_7: its transaction txn_4 does not exist"),
        # An inserted transaction: with a customer's leg, and with the house's only.
        (
            "INSERT INTO ledger_transaction VALUES (7, 1, 1800000003000, '', 'op', ''); "
            "INSERT INTO entry VALUES (13, 7, '{bob}', 5, 2, 5000000005, NULL); "
            "INSERT INTO entry VALUES (14, 7, 'house_outside', -5, NULL, NULL, NULL); "
            "UPDATE account SET balance_nanos = 5000000005, entries = 2 WHERE account_id = '{bob}'",
            "entry ent_13 of account {bob}: has no chain",
        ),
        (
            "INSERT INTO ledger_transaction VALUES (7, 1, 0, '', '', ''); "
            "INSERT INTO entry VALUES (13, 7, 'house_outside', 5, NULL, NULL, NULL); "
            "INSERT INTO entry VALUES (14, 7, 'house_outside', -5, NULL, NULL, NULL)",
            "transaction txn_7: none of its legs is a customer's",
        ),
        # Swapped order.
        (
            "UPDATE entry SET account_seq = 99 WHERE number = 5; UPDATE entry SET account_seq = 2 WHERE number = 7; "
            "UPDATE entry SET account_seq = 3 WHERE number = 5",
            "entry ent_5 of account {ada}: is number 3 of the account, 2 is expected",
        ),
        # Prices: one that was charged by, and one that nobody has used.
        (
            "UPDATE price_version SET tiers = replace(tiers, '1000000000', '2000000000') WHERE number = 1",
            "transaction txn_3: charge of",
        ),
        (
            "UPDATE price_version SET tiers = replace(tiers, '1000000000', '5000000000') WHERE number = 2",
            "price versions 1 to 2: make the chain",
        ),
        ("DELETE FROM price_version WHERE number = 2", "price versions: there are 1, seal 1 sealed 2"),
        # Projections.
        ("UPDATE account SET balance_nanos = 0 WHERE account_id = '{ada}'", "account {ada}: balance_nanos is 0"),
        ("UPDATE account SET chain_head = NULL WHERE account_id = '{ada}'", "account {ada}: chain_head is absent"),
        # Chains taken away, and with them the point from which they must be there.
        (
            "UPDATE entry SET chain = NULL WHERE number = 1",
            "entry ent_1 of account {ada}: has no chain, one is expected",
        ),
        (
            "UPDATE entry SET chain = NULL; UPDATE account SET chain_head = NULL; UPDATE chain_start SET entry_number = 12",
            "chain_start: is 12, seal 1 says 0",
        ),
        # Seals.
        ("DELETE FROM seal WHERE number = 1", "seal 1: is missing"),
        ("UPDATE seal SET signature = zeroblob(64) WHERE number = 2", "seal 2: its signature is not that of key"),
        (
            "UPDATE seal SET key_id = 'another' WHERE number = 2",
            "seal 2: is signed with the key another, which is not known",
        ),
        (
            "UPDATE seal SET statement = CAST(replace(CAST(statement AS TEXT), 'last-entry 9', 'last-entry 8') AS BLOB) "
            "WHERE number = 2",
            "seal 2: its signature is not that of key",
        ),
        (
            "UPDATE seal SET last_entry = 0 WHERE number = 2",
            "seal 2: its row says last_entry 0, what was signed says 9",
        ),
        ("UPDATE seal SET statement = x'ff' WHERE number = 2", "seal 2: its statement cannot be read"),
    ],
)
def test_an_edit_is_named(ledger: SealedLedger, tmp_path: Path, edit: str, named: str) -> None:
    path = ledger.copy_to(tmp_path)
    names = {"ada": ledger.ada, "bob": ledger.bob}
    with behind_its_back(path) as connection:
        for statement in edit.format(**names).split("; "):
            assert connection.execute(statement).rowcount > 0
    found = ledger.problems(path)
    assert any(problem.startswith(named.format(**names)) or named.format(**names) in problem for problem in found), (
        found
    )


def test_chains_made_anew_without_the_seals_key_are_named(ledger: SealedLedger, tmp_path: Path) -> None:
    path = ledger.copy_to(tmp_path)
    # A credit that is ten times what it was, and everything after it as though it always had been.
    with behind_its_back(path) as connection:
        connection.execute("UPDATE entry SET amount_nanos = amount_nanos * 10 WHERE number IN (1, 2)")
        raised = (90_000_000_000, ledger.ada)
        connection.execute(
            "UPDATE entry SET balance_after_nanos = balance_after_nanos + ? WHERE account_id = ?", raised
        )
        connection.execute("UPDATE account SET balance_nanos = balance_nanos + ? WHERE account_id = ?", raised)
    recompute_chains(path)
    found = ledger.problems(path)
    assert [problem.partition(":")[0] for problem in found] == [
        f"entry number 3 of account {ledger.ada}",
        f"entry number 4 of account {ledger.ada}",
    ]
    assert "was sealed by seal 1 with" in found[0]


def test_a_tail_that_was_cut_off_is_named(ledger: SealedLedger, tmp_path: Path) -> None:
    path = ledger.copy_to(tmp_path)
    # Everything from the second credit on, as though it had not happened: requests and figures too.
    with behind_its_back(path) as connection:
        for table, column in (
            ("entry", "transaction_number"),
            ("charge", "transaction_number"),
            ("ledger_transaction", "number"),
        ):
            connection.execute(f"DELETE FROM {table} WHERE {column} >= 5")
        connection.execute("DELETE FROM reservation WHERE reservation_id NOT IN (SELECT reservation_id FROM charge)")
        connection.execute(
            "UPDATE account SET entries = 3, (balance_nanos, chain_head) = (SELECT balance_after_nanos, chain FROM entry "
            "WHERE number = 7) WHERE account_id = ?",
            (ledger.ada,),
        )
    assert ledger.problems(path) == [f"entry number 4 of account {ledger.ada}: is gone, but was sealed by seal 2"]
    # Without the seal nothing in the file says so any more; what was exported does.
    with behind_its_back(path) as connection:
        connection.execute("DELETE FROM seal WHERE number = 2")
    assert ledger.problems(path) == []
    found = ledger.problems(path, with_exported=True)
    assert [problem.partition(":")[0] for problem in found] == ["seal 2"]
    assert "was deleted, or this is an older copy" in found[0]


def test_an_older_copy_is_told_by_exported_seals(ledger: SealedLedger) -> None:
    assert ledger.problems(ledger.older) == []
    found = ledger.problems(ledger.older, with_exported=True)
    assert found == [
        "seal 2: was exported, but the ledger has none of that number; it was deleted, or this is an older copy of the ledger"
    ]


def test_seals_made_anew_with_another_key_are_named(ledger: SealedLedger, tmp_path: Path) -> None:
    path = ledger.copy_to(tmp_path)
    forged_key = seal_key.load_or_make(tmp_path / "forged")
    with stores.open_copy(path) as reader:
        last = reader.seals(1, 1)[0]
    statement = read(last.statement)
    forged = sealed(statement, forged_key.sign(last.statement), forged_key.key_id)
    with behind_its_back(path) as connection:
        change = "UPDATE seal SET signature = ?, key_id = ? WHERE number = 2"
        connection.execute(change, (forged.signature, forged.key_id))
    found = ledger.problems(path)
    assert len(found) == 1
    assert found[0].startswith(f"seal 2: is signed with the key {forged_key.key_id}, which is not known")


def test_a_history_made_anew_with_the_seals_key_is_told_by_what_was_exported(
    ledger: SealedLedger, tmp_path: Path
) -> None:
    # Whoever has the key too can seal another past; it is not the one that was taken out of reach.
    path = ledger.copy_to(tmp_path)
    key = seal_key.load(ledger.database.parent / "seal_key")
    with stores.open_copy(path) as reader:
        last = reader.seals(1, 1)[0]
    statement = last.statement.replace(b"at-ms 18000000", b"at-ms 18000001")
    remade = sealed(read(statement), key.sign(statement), key.key_id)
    with behind_its_back(path) as connection:
        change = "UPDATE seal SET statement = ?, signature = ?, sealed_at_ms = ? WHERE number = 2"
        connection.execute(change, (remade.statement, remade.signature, remade.sealed_at_ms))
    assert ledger.problems(path) == []
    found = ledger.problems(path, with_exported=True)
    assert len(found) == 1
    assert found[0].startswith(f"seal 2: was exported with the hash {last.sha256.hex()}")
