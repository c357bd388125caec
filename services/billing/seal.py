"""Seals: signed statements of what the chains had come to. Pure; anything in billing may import it.

A seal names the accounts that have changed since the seal before it, each with its number of entries and its chain after the
last one, the chain of the price versions, and the hash of the seal before it. So each seal stands for the whole ledger of its
moment and costs no more than what changed. What is signed is a text of lines that a person can read:

    speedinfer seal 1
    number 2
    at-ms 1800000000000
    previous <hash of seal 1, in hex; 64 zeros for the first>
    unchained-up-to 0
    last-entry 41
    prices 3 <chain, in hex>
    accounts 1
    acct_... 12 <chain, in hex>
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from services.billing import chain
from services.billing.price import PriceVersion

VERSION = "speedinfer seal 1"
# Before the first seal.
NONE_BEFORE = bytes(chain.HASH_BYTES)
# A seal of more accounts would be a message too large; what is left over goes into a further one. A line has some 120 bytes.
MAX_HEADS = 10_000
_HEADER_LINES = 8


@dataclass(frozen=True, slots=True)
class Head:
    """What an account's chain had come to."""

    account_id: str
    entries: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class Statement:
    """What is signed."""

    number: int
    sealed_at_ms: int
    previous: bytes
    # Entries up to this number have no chain; see services/billing/chain.py.
    chain_start: int
    # All accounts whose last entry has a number up to this one are covered, by this seal or an earlier one.
    last_entry: int
    prices: int
    prices_chain: bytes
    # Sorted by account.
    heads: tuple[Head, ...]

    def encoded(self) -> bytes:
        """Its bytes."""
        lines = [
            VERSION,
            f"number {self.number}",
            f"at-ms {self.sealed_at_ms}",
            f"previous {self.previous.hex()}",
            f"unchained-up-to {self.chain_start}",
            f"last-entry {self.last_entry}",
            f"prices {self.prices} {self.prices_chain.hex()}",
            f"accounts {len(self.heads)}",
        ]
        lines += [f"{head.account_id} {head.entries} {head.chain.hex()}" for head in self.heads]
        return "".join(f"{line}\n" for line in lines).encode()


def read(encoded: bytes) -> Statement:
    """A statement from its bytes. ValueError unless they are exactly those of one."""
    lines = encoded.decode().splitlines()
    fields = [line.split(" ") for line in lines[1:]]
    if len(lines) < _HEADER_LINES or lines[0] != VERSION or min(map(len, fields)) < 2:
        raise ValueError(f"no {VERSION!r}")
    statement = Statement(
        number=int(fields[0][1]),
        sealed_at_ms=int(fields[1][1]),
        previous=bytes.fromhex(fields[2][1]),
        chain_start=int(fields[3][1]),
        last_entry=int(fields[4][1]),
        prices=int(fields[5][1]),
        prices_chain=bytes.fromhex(fields[5][-1]),
        heads=tuple(Head(field[0], int(field[1]), bytes.fromhex(field[-1])) for field in fields[_HEADER_LINES - 1 :]),
    )
    if statement.encoded() != encoded:
        raise ValueError("not in its canonical form")
    return statement


@dataclass(frozen=True, slots=True)
class Seal:
    """A statement with its signature, as it is stored. The first four figures are copies of what it says."""

    number: int
    sealed_at_ms: int
    last_entry: int
    prices: int
    statement: bytes
    signature: bytes
    key_id: str

    @property
    def sha256(self) -> bytes:
        """What the next one calls `previous`."""
        return hashlib.sha256(self.statement).digest()


def sealed(statement: Statement, signature: bytes, key_id: str) -> Seal:
    """A statement that was signed."""
    return Seal(
        statement.number,
        statement.sealed_at_ms,
        statement.last_entry,
        statement.prices,
        statement.encoded(),
        signature,
        key_id,
    )


@dataclass(frozen=True, slots=True)
class Unsealed:
    """What no seal covers yet, as of one moment."""

    last: Seal | None
    chain_start: int
    # Of accounts with entries after `last.last_entry`: those whose last entry is oldest, at most as many as a seal holds.
    heads: Sequence[Head]
    # The greatest number of those last entries; of none: what the last seal says.
    last_entry: int
    # Set since the last seal, in order.
    prices: Sequence[PriceVersion]


def next_statement(unsealed: Unsealed, now_ms: int) -> Statement | None:
    """What is to be signed next; None where nothing has changed."""
    if not unsealed.heads and not unsealed.prices:
        return None
    before = read(unsealed.last.statement) if unsealed.last else None
    prices_chain = before.prices_chain if before else chain.NO_PRICES
    for version in unsealed.prices:
        prices_chain = chain.link_price(prices_chain, version)
    return Statement(
        number=before.number + 1 if before else 1,
        sealed_at_ms=now_ms,
        previous=unsealed.last.sha256 if unsealed.last else NONE_BEFORE,
        chain_start=unsealed.chain_start,
        last_entry=unsealed.last_entry,
        prices=(before.prices if before else 0) + len(unsealed.prices),
        prices_chain=prices_chain,
        heads=tuple(sorted(unsealed.heads, key=lambda head: head.account_id)),
    )
