"""The table of all gateways, and its place in a document. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BEGIN, END = "<!-- compare: begin -->", "<!-- compare: end -->"
HEAD = (
    "gateway",
    "does money",
    "CPU ms/request",
    "CPU us/event",
    "p50 ms, one client",
    "first event p50 / p99 ms at half of saturation",
    "KiB/open stream",
    "whole/s",
    "streams/s",
    "errors",
)


@dataclass(frozen=True)
class Row:
    """One gateway's figures by the names below, or why there are none."""

    name: str
    money: str = "no"
    note: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def cells(self) -> list[str]:
        """As they stand in the table."""
        if self.note:
            return [self.name, self.note, *[""] * (len(HEAD) - 2)]
        found = self.figures
        first = f"{_text(found['first_p50_ms'])} / {_text(found['first_p99_ms'])}"
        names = ("cpu_ms_per_request", "cpu_us_per_event", "one_p50_ms")
        rest = ("kib_per_stream", "whole_per_s", "streams_per_s", "errors")
        return [self.name, self.money, *(_text(found[n]) for n in names), first, *(_text(found[n]) for n in rest)]


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def markdown(rows: Sequence[Row], about: str) -> str:
    """What was measured on what, then the table."""
    lines = [list(HEAD), ["---"] * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join([about, "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def placed(document: str, table: str) -> str:
    """The document with the table between the two marks, whatever stood there. ValueError unless it has each mark once, in
    order."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"the document must hold {BEGIN} and then {END}, each once")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"
