"""A price list as rows: the common form of its two file formats, and what each entry asks of billing. Pure.

An entry is one version: its first tier, further tiers, bounds. Every cell is text as it stands in the file, and knows its
line, so that whatever is wrong with it, here or at billing, is said with the line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from speedinfer.billing.v1 import price_pb2 as pb

from services.cli import shape
from services.common.ids import uuid7
from services.common.money import MoneyError, from_money, parse_usd, to_money

SCOPE = ("model", "account_id", "effective_from")
TIER = ("from_prompt_tokens", "prompt", "cached_prompt", "completion")
COLUMNS = (*SCOPE, *TIER, *shape.BOUNDS)
# As many items as billing takes in one call.
MAX_ENTRIES = 1_000
_NUMBER = re.compile(r"[0-9]{1,10}")

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WrongLine:
    """What is wrong, and where."""

    line: int
    message: str


@dataclass(slots=True)
class Entry:
    """A version as it stands in a file. `tiers` has each tier with its line."""

    line: int
    scope: Cells
    bounds: Cells
    tiers: list[tuple[int, Cells]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An entry as billing takes it."""

    entry: Entry
    item: pb.SetPriceItem

    def line_of(self, field_name: str) -> int:
        """The line of what billing calls `tiers[1].prompt`."""
        match = re.match(r"tiers\[(\d{1,2})\]", field_name)
        place = int(match[1]) if match else 0
        return self.entry.tiers[place][0] if match and place < len(self.entry.tiers) else self.entry.line

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """Model, account and moment; no moment where it is to apply from now."""
        return _identity(self.item)


def wanted(entries: Sequence[Entry], effective_from: datetime | None) -> tuple[list[Wanted], list[WrongLine]]:
    """What the entries ask for, and what is wrong with them. `effective_from` stands for the moments of all of them."""
    found: list[Wanted] = []
    wrong: list[WrongLine] = []
    lines: dict[tuple[str, str, int | None], int] = {}
    if len(entries) > MAX_ENTRIES:
        return [], [WrongLine(entries[MAX_ENTRIES].line, f"a list has at most {MAX_ENTRIES} prices")]
    for entry in entries:
        problems: list[WrongLine] = []
        item = _item(entry, effective_from, problems)
        wrong += problems
        one = Wanted(entry, item)
        if not problems and (first := lines.setdefault(one.identity, entry.line)) != entry.line:
            wrong.append(WrongLine(entry.line, f"line {first} has a price of that model from the same moment already"))
        found.append(one)
    return found, wrong


def in_order(found: Iterable[Wanted], now_ms: int) -> list[Wanted]:
    """By their moments: a version takes over bounds that it does not name from the one before it."""
    return sorted(found, key=lambda one: now_ms if one.identity[2] is None else one.identity[2])


def stands(one: Wanted, versions: Iterable[pb.PriceVersion]) -> bool:
    """Whether billing has the version as it is wanted. `versions` are newest first, as billing lists them."""
    for version in versions:
        if _identity(version) == one.identity:
            same_tiers = [_tier_key(tier) for tier in version.tiers] == [_tier_key(tier) for tier in one.item.tiers]
            bounds = {bound.name: value for bound, value in version.bounds.ListFields()}
            return same_tiers and all(bounds.get(bound.name) == value for bound, value in one.item.bounds.ListFields())
    return False


def rows(version: pb.PriceVersion) -> list[dict[str, str]]:
    """A version as rows: one a tier, bounds with the first."""
    shown = shape.price(version)
    scope = {name: shown[name] or "" for name in SCOPE}
    tiers = [{name: "" if tier[name] is None else str(tier[name]) for name in TIER} for tier in shown["tiers"]]
    bounds = {name: str(value) for name, value in shown["bounds"].items() if value is not None}
    return [scope | tier | (bounds if place == 0 else {}) for place, tier in enumerate(tiers)]


def _item(entry: Entry, effective_from: datetime | None, wrong: list[WrongLine]) -> pb.SetPriceItem:
    item = pb.SetPriceItem(operation_id=uuid7(), model=entry.scope.get("model", ""))
    item.account_id = entry.scope.get("account_id", "")
    if not item.model:
        wrong.append(WrongLine(entry.line, "model is missing"))
    elif item.model != item.model.strip():
        wrong.append(WrongLine(entry.line, "model begins or ends with a space"))
    moment = effective_from or _moment(entry, wrong)
    if moment is not None:
        item.effective_from.FromDatetime(moment)
    for name in shape.BOUNDS:
        if entry.bounds.get(name):
            setattr(item.bounds, name, _count(entry.line, name, entry.bounds[name], wrong))
    for line, cells in entry.tiers:
        tier = item.tiers.add(
            from_prompt_tokens=_count(line, "from_prompt_tokens", cells.get("from_prompt_tokens") or "0", wrong)
        )
        for name in ("prompt", "cached_prompt", "completion"):
            text = cells.get(name, "")
            if text:
                getattr(tier, name).CopyFrom(to_money(_price(line, name, text, wrong)))
            elif name != "cached_prompt":
                wrong.append(WrongLine(line, f"{name} is missing; a price of 0 must be said"))
    return item


def _moment(entry: Entry, wrong: list[WrongLine]) -> datetime | None:
    text = entry.scope.get("effective_from", "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wrong.append(WrongLine(entry.line, f"effective_from: {text[:40]!r} is not a time; write 2026-01-31T12:00:00Z"))
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _count(line: int, name: str, text: str, wrong: list[WrongLine]) -> int:
    if not _NUMBER.fullmatch(text):
        wrong.append(WrongLine(line, f"{name}: {text[:40]!r} is not a whole number"))
        return 0
    return int(text)


def _price(line: int, name: str, text: str, wrong: list[WrongLine]) -> int:
    try:
        nanos = parse_usd(text)
    except MoneyError as error:
        wrong.append(WrongLine(line, f"{name}: {error}"))
        return 0
    if nanos < 0:
        wrong.append(WrongLine(line, f"{name}: a price may not be negative"))
    return max(nanos, 0)


def _identity(message: Any) -> tuple[str, str, int | None]:
    moment_ms = message.effective_from.ToMilliseconds() if message.HasField("effective_from") else None
    return message.model, message.account_id, moment_ms


def _tier_key(tier: pb.PriceTier) -> tuple[int, int, int, int]:
    prompt = from_money(tier.prompt)
    cached = from_money(tier.cached_prompt) if tier.HasField("cached_prompt") else prompt
    return tier.from_prompt_tokens, prompt, cached, from_money(tier.completion)
