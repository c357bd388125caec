"""The table of gateways and its place in the document."""

import pytest

from benchmarks.table import BEGIN, END, HEAD, Row, markdown, placed

FIGURES = {
    "cpu_ms_per_request": 1.25,
    "cpu_us_per_event": None,
    "one_p50_ms": 2.5,
    "first_p50_ms": 15.0,
    "first_p99_ms": 50.0,
    "kib_per_stream": 40.0,
    "whole_per_s": 1234.5,
    "streams_per_s": 150.0,
    "errors": 0,
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_row_has_every_column() -> None:
    rows = [Row("ours", "yes", figures=FIGURES), Row("theirs", note="not installed")]
    about, blank, *lines = markdown(rows, "where").splitlines()
    assert (about, blank) == ("where", "")
    assert [len(cells(line)) for line in lines] == [len(HEAD)] * 4
    expected = ["ours", "yes", "1.25", "-", "2.5", "15.0 / 50.0", "40.0", "1,234.5", "150.0", "0"]
    assert cells(lines[2]) == expected
    assert cells(lines[3])[:2] == ["theirs", "not installed"]


def test_what_stood_between_the_marks_is_replaced_and_nothing_else() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = placed(document, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert placed(once, "new") == once


@pytest.mark.parametrize(
    "document", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{END}", f"{BEGIN}{BEGIN}{END}"], ids=repr
)
def test_a_document_without_its_marks_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="each once"):
        placed(document, "new")


def test_the_document_has_its_marks() -> None:
    from benchmarks.compare import README

    assert "new" in placed(README.read_text(), "new")
