"""Points over a logarithmic axis, as an SVG file. The benchmarks use it."""

from dataclasses import dataclass, field
from html import escape
from math import log10
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 640, 320, 56
COLOURS = ("#1f6feb", "#bc4c00", "#1a7f37", "#8250df")


@dataclass
class Series:
    """A line: (x above zero, y)."""

    name: str
    points: list[tuple[int, float]] = field(default_factory=list)


def write_svg(path: Path, series: list[Series], title: str) -> None:
    """Draw all of them; y begins at zero, so that what is flat looks flat."""
    points = [point for each in series for point in each.points]
    low, high = (bound(log10(x) for x, _ in points) for bound in (min, max))
    top = max(y for _, y in points) * 1.25 or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        share = (log10(x) - low) / ((high - low) or 1)
        return round(MARGIN + share * (WIDTH - 2 * MARGIN), 1), round(
            HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN), 1
        )

    drawn = [f'<text x="{MARGIN}" y="24">{escape(title)}</text>']
    for power in range(int(low), int(high) + 1):
        x, y = at(max(10**power, 10**low), 0)
        drawn.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{10**power:,}</text>')
    for step in range(5):
        x, y = at(10**low, top * step / 4)
        drawn.append(f'<line x1="{x}" x2="{WIDTH - MARGIN}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        drawn.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{top * step / 4:.3g}</text>')
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in each.points]
        line = " ".join(f"{x},{y}" for x, y in places)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        drawn.append(
            f'<text x="{WIDTH - MARGIN}" y="{24 + 16 * number}" fill="{colour}" text-anchor="end">by {each.name}</text>'
        )
    body = "\n".join(drawn)
    style = 'font-family="sans-serif" font-size="12"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" {style}>\n{body}\n</svg>\n'
    )
