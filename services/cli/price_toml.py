"""A price list as TOML: a table `[[prices]]` a version, with `[prices.bounds]` and further `[[prices.tiers]]`. Pure.

Python's reader of TOML tells no lines, so those of the tables' headings are looked for in the text; a value's problem is said
with the line of its table.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from services.cli import shape
from services.cli.price_list import SCOPE, TIER, Entry, WrongLine

_HEADING = re.compile(r"[ \t]*\[\[[ \t]*prices[ \t]*(\.[ \t]*tiers[ \t]*)?\]\]")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_TIER_PRICES = TIER[1:]
_PRICE_KEYS = (*SCOPE, *_TIER_PRICES, "tiers", "bounds")


def write(versions: Sequence[Sequence[Mapping[str, str]]]) -> str:
    """The file's text, of versions as rows."""
    parts = ["# Prices in USD per million tokens."]
    for first, *further in versions:
        lines = ["", "[[prices]]"]
        lines += [f"{name} = {_string(first[name])}" for name in (*SCOPE, *_TIER_PRICES) if first[name]]
        bounds = [f"{name} = {first[name]}" for name in shape.BOUNDS if name in first]
        lines += ["[prices.bounds]", *bounds] if bounds else []
        for tier in further:
            lines += ["[[prices.tiers]]", f"from_prompt_tokens = {tier['from_prompt_tokens']}"]
            lines += [f"{name} = {_string(tier[name])}" for name in _TIER_PRICES if tier[name]]
        parts += lines
    return "\n".join(parts) + "\n"


def read(text: str) -> tuple[list[Entry], list[WrongLine]]:
    """The file's entries, and what is wrong with its form."""
    try:
        # As text, a decimal is exact; a NaN or an exponent is refused where amounts are read.
        whole = tomllib.loads(text, parse_float=str)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _LINE.search(str(error))
        return [], [WrongLine(int(found[1]) if found else 1, f"this is not TOML: {error}")]
    wrong: list[WrongLine] = []
    if unknown := [name for name in whole if name != "prices"]:
        wrong.append(WrongLine(1, f"only [[prices]] is expected, not {', '.join(name[:40] for name in unknown)}"))
    tables = whole.get("prices", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        return [], [*wrong, WrongLine(1, "prices must be tables: [[prices]]")]
    places = _Places(text)
    return [_entry(table, places, wrong) for table in tables], wrong


class _Places:
    """The lines of headings, handed out in their order. Tables that are written inline have their version's."""

    def __init__(self, text: str) -> None:
        self._found: list[tuple[bool, int]] = []
        for number, line in enumerate(text.split("\n"), 1):
            if match := _HEADING.match(line):
                self._found.append((match[1] is not None, number))
        self._found.reverse()
        self.line = 1

    def price(self) -> int:
        """The line of the next `[[prices]]`."""
        while self._found and self._found[-1][0]:
            self._found.pop()
        if self._found:
            self.line = self._found.pop()[1]
        return self.line

    def tier(self) -> int:
        """The line of the next `[[prices.tiers]]` of this version."""
        if self._found and self._found[-1][0]:
            return self._found.pop()[1]
        return self.line


def _entry(table: dict[str, Any], places: _Places, wrong: list[WrongLine]) -> Entry:
    line = places.price()
    cells = _cells(table, _PRICE_KEYS, line, wrong)
    bounds = table.get("bounds", {})
    tiers = table.get("tiers", [])
    if not isinstance(bounds, dict):
        wrong.append(WrongLine(line, "bounds must be a table: [prices.bounds]"))
        bounds = {}
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        wrong.append(WrongLine(line, "tiers must be tables: [[prices.tiers]]"))
        tiers = []
    entry = Entry(line, cells, _cells(bounds, shape.BOUNDS, line, wrong), [(line, cells)])
    for tier in tiers:
        tier_line = places.tier()
        entry.tiers.append((tier_line, _cells(tier, TIER, tier_line, wrong)))
    return entry


def _cells(table: dict[str, Any], known: Sequence[str], line: int, wrong: list[WrongLine]) -> dict[str, str]:
    cells = {}
    for name, value in table.items():
        if name not in known:
            wrong.append(WrongLine(line, f"{name[:40]} is not known"))
        elif name in ("tiers", "bounds"):
            continue
        elif isinstance(value, datetime):
            cells[name] = value.isoformat()
        elif isinstance(value, bool) or not isinstance(value, str | int | date):
            wrong.append(WrongLine(line, f"{name}: text or a number is expected"))
        else:
            cells[name] = str(value)
    return cells


def _string(text: str) -> str:
    # TOML's basic strings have the escapes of JSON's; but DEL, too, must be escaped there.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
