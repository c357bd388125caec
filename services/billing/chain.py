"""The hash chain of an account's entries: what is hashed, and in which bytes. Pure; anything in billing may import it.

Each entry of a customer carries SHA-256(chain before it, its encoding). The encoding names everything that the entry says and
everything that its transaction says, the house's legs and the record of usage included, so that nothing of a transaction can
be changed without the customer's chain showing it. It is a JSON array of texts, integers and nulls, written as RFC 8785 has it
(no spaces, only the escapes that must be), with integers in full, and begins with its own version: another encoding has another
name.

Entries that are older than chains have none. An account's chain begins from the number of its entries and its balance of then.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import orjson

from services.billing.ledger import HOUSE, Charge, Kind
from services.billing.price import PriceVersion

HASH_BYTES = 32
ENTRY = "speedinfer entry 1"
START = "speedinfer chain 1"
PRICE = "speedinfer price 1"
# Before the first price version.
NO_PRICES = bytes(HASH_BYTES)


class Booked(Protocol):
    """A transaction, stored or about to be."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def kind(self) -> Kind:
        """What it is."""

    @property
    def booked_at_ms(self) -> int:
        """When."""

    @property
    def request_id(self) -> str:
        """The request, or empty."""

    @property
    def operation_id(self) -> str:
        """The operator's mutation, or empty."""

    @property
    def note(self) -> str:
        """The operator's text, or empty."""

    @property
    def charge(self) -> Charge | None:
        """What it was made of."""


class Leg(Protocol):
    """An entry, stored or about to be."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def account_id(self) -> str:
        """Whose."""

    @property
    def amount_nanos(self) -> int:
        """How much."""

    @property
    def account_seq(self) -> int | None:
        """Its number within the account."""

    @property
    def balance_after_nanos(self) -> int | None:
        """The account's balance after it."""


def start(account_id: str, entries: int, balance_nanos: int) -> bytes:
    """What the first chained entry follows: the account as it was just before."""
    return hashlib.sha256(_encoded(START, account_id, entries, balance_nanos)).digest()


def link(before: bytes, transaction: Booked, legs: Sequence[Leg], own: Leg) -> bytes:
    """The chain after the entry `own`, one of the transaction's legs; `legs` are all of them by number."""
    values: list[str | int | None] = [
        *(ENTRY, own.account_id, own.account_seq, own.number, own.balance_after_nanos),
        *(transaction.number, int(transaction.kind), transaction.booked_at_ms),
        *(transaction.request_id, transaction.operation_id, transaction.note, len(legs)),
    ]
    for leg in legs:
        values += (leg.number, leg.account_id, leg.amount_nanos)
    if (charge := transaction.charge) is not None:
        values += (
            *(charge.reservation_id, charge.account_id, charge.key_id, charge.model, charge.operation),
            *(charge.price_version, charge.usage.prompt, charge.usage.cached, charge.usage.completion),
            *(charge.worker_id, charge.attempts, charge.ending, charge.hold_nanos, charge.amount_nanos),
        )
    return hashlib.sha256(before + _encoded(*values)).digest()


def link_price(before: bytes, version: PriceVersion) -> bytes:
    """The chain of price versions after one more, in the order in which they were set. It is stored nowhere but in seals."""
    values: list[str | int | None] = [
        *(PRICE, version.version, version.model, version.account_id),
        *(version.effective_from_ms, version.created_at_ms, len(version.tiers)),
    ]
    for tier in version.tiers:
        values += (tier.from_prompt_tokens, tier.prompt_nanos, tier.cached_nanos, tier.completion_nanos)
    bounds = version.bounds
    values += (
        *(bounds.max_output_tokens, bounds.default_output_tokens, bounds.tokens_per_byte),
        *(bounds.template_request_tokens, bounds.template_message_tokens),
        *(bounds.tools_request_tokens, bounds.tools_message_tokens, bounds.image_tokens),
    )
    return hashlib.sha256(before + _encoded(*values)).digest()


def after(account_id: str, account_seq: int, balance_nanos: int, chained: bytes | None) -> bytes:
    """The chain after an entry; an old one has none, and whatever follows it begins there."""
    return chained or start(account_id, account_seq, balance_nanos)


def is_chained(leg: Leg) -> bool:
    """Whether it belongs to a chain: the house has none of its own, since every transaction has a customer's leg."""
    return leg.account_id not in HOUSE


def _encoded(*values: str | int | None) -> bytes:
    return orjson.dumps(values)
