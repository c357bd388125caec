"""The bytes that are hashed are those that the module's text describes, and nothing of an entry is left out of them."""

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from services.billing import chain
from services.billing.ledger import OUTSIDE, REVENUE, Charge, Kind
from services.billing.price import Bounds, PriceVersion, Tier
from services.billing.store.port import NewEntry, NewTransaction
from services.billing.usage import Counts

BEFORE = bytes(range(32))
CHARGE = Charge("r", "acct_a", "k", "m", 1, "pv", Counts(10, None, 5), "w", 2, 1, 99, 15)
# Every character that is escaped, and some that are not.
NOTE = 'é 😀 / \u2028 \x7f " \\ ' + "".join(map(chr, range(32)))
TRANSACTION = NewTransaction(7, Kind.CHARGE, 1_800, "r", "", NOTE, CHARGE)
OWN = NewEntry(12, 7, "acct_a", -15, 3, 85)
OTHER = NewEntry(13, 7, REVENUE, 15, None, None)


def written(*values: str | int | None) -> bytes:
    """By another library than the product's: what an auditor's own program would do."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def test_an_entry_s_bytes_are_as_described() -> None:
    head = ("speedinfer entry 1", "acct_a", 3, 12, 85, 7, 2, 1_800, "r", "", NOTE, 2)
    legs = (12, "acct_a", -15, 13, REVENUE, 15)
    charge = ("r", "acct_a", "k", "m", 1, "pv", 10, None, 5, "w", 2, 1, 99, 15)
    expected = hashlib.sha256(BEFORE + written(*head, *legs, *charge)).digest()
    assert chain.link(BEFORE, TRANSACTION, [OWN, OTHER], OWN) == expected
    # Written down, so that a change of the encoding without a change of its version is seen.
    assert expected.hex() == "d1f21f386822e9d68caec083b7e0d99c621914f456c2792e06ca6c18fb2f092a"


def test_a_chain_begins_from_the_account_as_it_was() -> None:
    assert chain.start("acct_a", 2, -5) == hashlib.sha256(written("speedinfer chain 1", "acct_a", 2, -5)).digest()
    assert chain.after("acct_a", 2, -5, None) == chain.start("acct_a", 2, -5)
    assert chain.after("acct_a", 2, -5, BEFORE) == BEFORE


def other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case Kind():
            return Kind.LATE_CHARGE
        case None:
            return 0
        case int():
            return value + 1
        case str():
            return value + "x"
        case Counts():
            return value._replace(prompt=value.prompt + 1)
    raise AssertionError(value)


def with_other(record: Any, **changed: Any) -> Any:
    """The record with other values."""
    return replace(record, **changed) if is_dataclass(record) else record._replace(**changed)


CHANGES = [
    *((TRANSACTION, name) for name in TRANSACTION._fields if name != "charge"),
    *((CHARGE, name) for name in CHARGE._fields),
    *((OWN, name) for name in ("number", "account_id", "amount_nanos", "account_seq", "balance_after_nanos")),
    *((OTHER, name) for name in ("number", "account_id", "amount_nanos")),
]


@pytest.mark.parametrize(
    ("record", "name"), CHANGES, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
def test_whatever_is_changed_changes_the_chain(record: Any, name: str) -> None:
    changed = with_other(record, **{name: other(getattr(record, name))})
    transaction = changed if record is TRANSACTION else TRANSACTION
    if record is CHARGE:
        transaction = TRANSACTION._replace(charge=changed)
    own, against = (changed if record is one else one for one in (OWN, OTHER))
    assert chain.link(BEFORE, transaction, [own, against], own) != chain.link(BEFORE, TRANSACTION, [OWN, OTHER], OWN)


def test_absent_zero_and_neighbouring_texts_are_told_apart() -> None:
    def of(**changed: Any) -> bytes:
        return chain.link(BEFORE, TRANSACTION._replace(**changed), [OWN, OTHER], OWN)

    usages = [Counts(10, None, 5), Counts(10, 0, 5), Counts(10, 5, None)]
    made = {of(charge=CHARGE._replace(usage=usage)) for usage in usages}
    made |= {of(charge=None), of(request_id="", note="r"), of(request_id="r", note="")}
    made |= {of(note="null"), of(note="1"), of(note='","')}
    assert len(made) == 9
    assert chain.link(made.pop(), TRANSACTION, [OWN, OTHER], OWN) != chain.link(BEFORE, TRANSACTION, [OWN, OTHER], OWN)


def test_the_house_has_no_chain_of_its_own() -> None:
    assert [chain.is_chained(leg) for leg in (OWN, OTHER, replace(OTHER, account_id=OUTSIDE))] == [True, False, False]


def test_nothing_of_a_price_is_left_out() -> None:
    tier, bounds = Tier(0, 1, 2, 3), Bounds()
    version = PriceVersion("pv", "m", "", 5, 6, (tier,), bounds)
    names = ("version", "model", "account_id", "effective_from_ms", "created_at_ms")
    changed = [replace(version, **{name: other(getattr(version, name))}) for name in names]
    changed += [
        replace(version, tiers=(replace(tier, **{f.name: other(getattr(tier, f.name))}),)) for f in fields(tier)
    ]
    changed += [
        replace(version, bounds=replace(bounds, **{f.name: other(getattr(bounds, f.name))})) for f in fields(bounds)
    ]
    changed += [replace(version, tiers=(tier, replace(tier, from_prompt_tokens=9)))]
    made = {chain.link_price(BEFORE, one) for one in (version, *changed)}
    assert len(made) == 1 + len(changed)
