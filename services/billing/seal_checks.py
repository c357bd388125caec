"""Whether seals are genuine and the ledger is what they say. Pure; the audit and the command import it."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from services.billing import chain
from services.billing.price import PriceVersion
from services.billing.seal import NONE_BEFORE, Seal, Statement, read

# Key id, statement, signature; answers why the signature is no good, or nothing.
Verify = Callable[[str, bytes, bytes], str]
ChainsAt = Callable[[Sequence[tuple[str, int]]], dict[tuple[str, int], bytes]]


class Succession:
    """Seals one after another: each signed, each naming the one before it."""

    def __init__(self, verify: Verify, first: int = 0, previous: bytes = NONE_BEFORE) -> None:
        self._verify = verify
        self._number = first
        self._previous: bytes | None = previous
        self._last_entry = 0

    def check(self, seal: Seal) -> tuple[Statement | None, list[str]]:
        """The statement, if it is one that can be believed, and what is wrong."""
        name = f"seal {seal.number}"
        problems: list[str] = []
        missing = list(range(self._number + 1, seal.number))
        if missing:
            problems.append(
                f"seals {missing[0]} to {missing[-1]}: are missing" if missing[1:] else f"seal {missing[0]}: is missing"
            )
        previous = None if missing else self._previous
        self._number, self._previous = max(seal.number, self._number), seal.sha256
        try:
            statement = read(seal.statement)
        except ValueError as error:
            return None, [*problems, f"{name}: its statement cannot be read ({error})"]
        if why := self._verify(seal.key_id, seal.statement, seal.signature):
            return None, [*problems, f"{name}: {why}"]
        problems += [
            f"{name}: its row says {field_name} {stored}, what was signed says {signed}"
            for field_name in ("number", "sealed_at_ms", "last_entry", "prices")
            if (stored := getattr(seal, field_name)) != (signed := getattr(statement, field_name))
        ]
        if previous is not None and statement.previous != previous:
            problems.append(
                f"{name}: follows a seal with the hash {statement.previous.hex()}, the one before it has {previous.hex()}"
            )
        if statement.last_entry < self._last_entry:
            problems.append(
                f"{name}: covers entries up to {statement.last_entry}, an earlier one up to {self._last_entry}"
            )
        self._last_entry = statement.last_entry
        return statement, problems


class SealChecks:
    """The ledger compared with its seals, given in order."""

    def __init__(self, prices: Sequence[PriceVersion], chain_start: int, chains_at: ChainsAt, verify: Verify) -> None:
        self._price_chains = list(itertools.accumulate(prices, chain.link_price, initial=chain.NO_PRICES))
        self._chain_start = chain_start
        self._chains_at = chains_at
        self._succession = Succession(verify)

    def check(self, seal: Seal) -> Iterator[str]:
        """What is wrong with the seal, and where the ledger is no longer what it was sealed as."""
        statement, problems = self._succession.check(seal)
        yield from problems
        if statement is None:
            return
        name = f"seal {seal.number}"
        if statement.chain_start != self._chain_start:
            yield f"chain_start: is {self._chain_start}, {name} says {statement.chain_start}"
        yield from self._prices(name, statement)
        found = self._chains_at([(head.account_id, head.entries) for head in statement.heads])
        for head in statement.heads:
            chained = found.get((head.account_id, head.entries))
            place = f"entry number {head.entries} of account {head.account_id}"
            if chained is None:
                yield f"{place}: is gone, but was sealed by {name}"
            elif chained != head.chain:
                yield f"{place}: has the chain {chained.hex()}, but was sealed by {name} with {head.chain.hex()}"

    def _prices(self, name: str, statement: Statement) -> Iterator[str]:
        if statement.prices >= len(self._price_chains):
            yield f"price versions: there are {len(self._price_chains) - 1}, {name} sealed {statement.prices}"
        elif self._price_chains[statement.prices] != statement.prices_chain:
            chained = self._price_chains[statement.prices]
            yield (
                f"price versions 1 to {statement.prices}: make the chain {chained.hex()}, but were sealed by {name} with "
                f"{statement.prices_chain.hex()}"
            )


def compare(exported: Iterable[Seal], stored: Iterable[Seal], verify: Verify) -> Iterator[str]:
    """Where the ledger's seals are not those that were exported, both in order; the ledger may have later ones. An export may
    begin with any seal."""
    rest = iter(stored)
    here = next(rest, None)
    succession: Succession | None = None
    for seal in exported:
        if succession is None:
            first = _previous(seal)
            succession = Succession(verify, seal.number - 1, first)
        for problem in succession.check(seal)[1]:
            yield f"exported {problem}"
        while here is not None and here.number < seal.number:
            here = next(rest, None)
        if here is None or here.number != seal.number:
            yield (
                f"seal {seal.number}: was exported, but the ledger has none of that number; it was deleted, or this is an "
                "older copy of the ledger"
            )
        elif here.statement != seal.statement:
            yield (
                f"seal {seal.number}: was exported with the hash {seal.sha256.hex()}, the ledger's has {here.sha256.hex()}; "
                "the ledger was rewritten or restored since"
            )


def _previous(seal: Seal) -> bytes:
    try:
        return read(seal.statement).previous if seal.number > 1 else NONE_BEFORE
    except ValueError:
        return NONE_BEFORE
