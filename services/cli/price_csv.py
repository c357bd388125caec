"""A price list as CSV: a row a tier, those of one version one below the other, bounds in the first. Pure."""

import csv
import io
from collections.abc import Iterable, Mapping

from services.cli import shape
from services.cli.price_list import COLUMNS, SCOPE, TIER, Entry, WrongLine

# A spreadsheet takes text that begins with one of these for a formula; a quote before it says that it is text.
_QUOTE = "'"
_QUOTED = ("=", "+", "@", "-", "\t", "\r", _QUOTE)


def write(rows: Iterable[Mapping[str, str]]) -> str:
    """The file's text."""
    target = io.StringIO()
    table = csv.DictWriter(target, COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({name: _QUOTE + cell if cell.startswith(_QUOTED) else cell for name, cell in row.items()})
    return target.getvalue()


def read(text: str) -> tuple[list[Entry], list[WrongLine]]:
    """The file's entries, and what is wrong with its form."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    entries: list[Entry] = []
    wrong: list[WrongLine] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        if problem := _wrong_header(header):
            return [], [WrongLine(1, problem)]
        for row in reader:
            if any(cell.strip() for cell in row):
                _take(dict(zip(header, map(_plain, row), strict=False)), len(row) - len(header), reader, entries, wrong)
    except csv.Error as error:
        wrong.append(WrongLine(reader.line_num, f"this is not CSV: {error}"))
    return entries, wrong


def _take(cells: dict[str, str], surplus: int, reader: object, entries: list[Entry], wrong: list[WrongLine]) -> None:
    line: int = reader.line_num  # type: ignore[attr-defined]
    if surplus:
        wrong.append(WrongLine(line, f"it has {abs(surplus)} cells too {'many' if surplus > 0 else 'few'}"))
        return
    # But for names, which are taken as they stand.
    cells = {name: cell if name == "model" else cell.strip() for name, cell in cells.items()}
    scope = {name: cells.get(name, "") for name in SCOPE}
    bounds = {name: cells[name] for name in shape.BOUNDS if cells.get(name)}
    tier = {name: cells.get(name, "") for name in TIER}
    if tier["from_prompt_tokens"] in ("", "0"):
        entries.append(Entry(line, scope, bounds, [(line, tier)]))
    elif not entries or dict(entries[-1].scope) != scope:
        wrong.append(WrongLine(line, "a tier stands below the row from 0 of the same model, account and moment"))
    elif bounds:
        wrong.append(WrongLine(line, f"bounds stand in a version's first row: {', '.join(bounds)}"))
    else:
        entries[-1].tiers.append((line, tier))


def _wrong_header(header: list[str]) -> str:
    unknown = [name for name in header if name not in COLUMNS]
    if unknown:
        return f"unknown columns: {', '.join(name[:40] or '(empty)' for name in unknown)}"
    missing = [name for name in ("model", "prompt", "completion") if name not in header]
    if missing:
        return f"columns are missing: {', '.join(missing)}"
    return "a column stands twice" if len(set(header)) != len(header) else ""


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith(_QUOTE) and cell[1:].startswith(_QUOTED) else cell
