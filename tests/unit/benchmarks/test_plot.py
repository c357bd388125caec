"""Curves as SVG."""

from pathlib import Path
from xml.etree import ElementTree

from benchmarks.growth import up_to
from benchmarks.plot import Series, write_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_small_values_have_labels_that_differ(tmp_path: Path) -> None:
    write_svg(tmp_path / "curve.svg", [Series("workers", [(1, 0.9), (10, 1.1), (1_000, 1.2)])], "CPU <ms>")
    drawn = ElementTree.parse(tmp_path / "curve.svg").getroot()
    texts = [str(text.text) for text in drawn.iter(f"{SVG}text")]
    assert texts[0] == "CPU <ms>"
    assert {"1", "10", "100", "1,000", "0", "0.375", "0.75", "1.12", "1.5", "by workers"} <= set(texts)
    assert len(list(drawn.iter(f"{SVG}circle"))) == 3


def test_steps_end_where_they_are_told_to() -> None:
    assert up_to((1, 10, 100), 10) == [1, 10]
