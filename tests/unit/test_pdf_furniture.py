"""Running headers, footers and page numbers of PDFs."""

from __future__ import annotations

import pytest

from pipelines.extract.pdf.furniture import Furniture, PageText, margins
from pipelines.extract.pdf.lines import Line


def _line(text: str, page: int, height: float, *, size: float = 10, bold: bool = False, table: bool = False) -> Line:
    return Line(text, page, 50, 300, height, height, size, bold, table=table)


def _pages(count: int, top: str = "", bottom: str = "", first: int = 1, **more: object) -> list[PageText]:
    pages = []
    for number in range(1, count + 1):
        shown = number + first - 1
        lines = [_line(f"Body of page {number}, all its own.", number, 400)]
        if top:
            lines.insert(0, _line(top.format(n=shown), number, 800, **more))  # type: ignore[arg-type]
        if bottom:
            lines.append(_line(bottom.format(n=shown), number, 30))
        pages.append(PageText(number, lines, 730, 110))
    return pages


def _texts(pages: list[PageText], at_once: int = 64) -> list[list[str]]:
    furniture = Furniture()
    found = []
    for start in range(0, len(pages), at_once):
        found += furniture.clean(pages[start : start + at_once])
    return [[line.text for line in lines] for lines in found]


def test_a_running_header_is_kept_once() -> None:
    texts = _texts(_pages(5, top="Pump manual"))
    assert texts[0] == ["Pump manual", "Body of page 1, all its own."]
    assert texts[1:] == [[f"Body of page {number}, all its own."] for number in range(2, 6)]


@pytest.mark.parametrize("form", ["{n}", "- {n} -", "Page {n} of 9", "Seite {n}", "{n}/9"])
def test_page_numbers_go_altogether(form: str) -> None:
    assert _texts(_pages(9, bottom=form)) == [[f"Body of page {number}, all its own."] for number in range(1, 10)]


def test_page_numbers_may_begin_anywhere_and_be_roman() -> None:
    assert all(len(texts) == 1 for texts in _texts(_pages(6, bottom="{n}", first=117)))
    romans = ["i", "ii", "iii", "iv", "v"]
    pages = _pages(5)
    for page, roman in zip(pages, romans, strict=True):
        page.lines.append(_line(roman, page.number, 30))
    assert all(len(texts) == 1 for texts in _texts(pages))


def test_a_header_with_a_page_number_in_it_is_kept_once() -> None:
    texts = _texts(_pages(4, top="Pump manual, third edition {n}"))
    assert [len(found) for found in texts] == [2, 1, 1, 1]


def test_two_pages_are_left_alone() -> None:
    assert all(len(texts) == 3 for texts in _texts(_pages(2, top="Pump manual", bottom="{n}")))


@pytest.mark.parametrize("look", [{"bold": True}, {"size": 14}])
def test_headings_that_count_are_not_running_headers(look: dict[str, object]) -> None:
    texts = _texts(_pages(4, top="Chapter {n}", **look))
    assert [found[0] for found in texts] == [f"Chapter {number}" for number in range(1, 5)]


def test_numbers_that_do_not_count_with_the_pages_stay() -> None:
    pages = _pages(4)
    for page, amount in zip(pages, (70, 12, 55, 31), strict=True):
        page.lines.append(_line(str(amount), page.number, 30))
    assert [found[-1] for found in _texts(pages)] == ["70", "12", "55", "31"]


def test_the_same_line_in_the_middle_of_pages_stays() -> None:
    pages = [PageText(number, [_line("Signature of the tenant", number, 400)], 730, 110) for number in range(1, 6)]
    assert all(found == ["Signature of the tenant"] for found in _texts(pages))


def test_a_table_at_the_top_of_each_page_stays() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    pages = [PageText(number, [_line(table, number, 800, table=True)], 730, 110) for number in range(1, 6)]
    assert all(found == [table] for found in _texts(pages))


def test_pages_may_come_a_few_at_a_time() -> None:
    pages = _pages(30, top="Pump manual", bottom="{n}")
    texts = _texts(pages, at_once=8)
    assert texts[0] == ["Pump manual", "Body of page 1, all its own."]
    assert all(len(found) == 1 for found in texts[1:])


def test_what_is_kept_of_a_running_header_heads_nothing_unless_it_is_the_large_title() -> None:
    pages = _pages(4, top="Pump manual")
    assert Furniture().clean(pages)[0][0].level == -1
    pages = _pages(4, top="Pump manual")
    pages[0].lines[0] = _line("Pump manual", 1, 800, size=20)
    assert Furniture().clean(pages)[0][0].level == 0


@pytest.mark.parametrize(
    ("rotation", "expected"), [(0, (870, 130)), (90, (-65, -435)), (180, (-130, -870)), (270, (435, 65))]
)
def test_margins_are_where_the_reader_sees_them(rotation: int, expected: tuple[float, float]) -> None:
    assert margins((0, 0, 500, 1000), rotation) == pytest.approx(expected)
