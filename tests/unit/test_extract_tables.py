from __future__ import annotations

import pytest

from pipelines.extract.office.omml import MATH, latex
from pipelines.extract.tables import ROWS_PER_BLOCK, table_blocks, table_text


def test_rows_become_a_markdown_table_as_wide_as_its_widest_row() -> None:
    rows = [["a", "b"], ["1", None, "3"], [" x\ny ", "p|q", ""], [None, ""], ["", "2"]]
    assert table_text(rows).splitlines() == [
        "| a | b |  |",
        "| --- | --- | --- |",
        "| 1 |  | 3 |",
        "| x y | p\\|q |",
        "|  | 2 |",
    ]


@pytest.mark.parametrize("rows", [[], [[]], [["", None], [" "]]])
def test_rows_without_content_are_no_table(rows: list[list[str | None]]) -> None:
    assert table_text(rows) == ""
    assert list(table_blocks(rows)) == []


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(1, [0]), (2, [1]), (ROWS_PER_BLOCK + 1, [ROWS_PER_BLOCK]), (2 * ROWS_PER_BLOCK + 2, [ROWS_PER_BLOCK] * 2 + [1])],
)
def test_each_block_of_a_long_table_begins_with_the_header(rows: int, sizes: list[int]) -> None:
    blocks = list(table_blocks([[f"r{number}", "v"] for number in range(rows)]))
    assert all(block.text.startswith("| r0 | v |\n| --- | --- |") for block in blocks)
    assert [block.text.count("\n") - 1 for block in blocks] == sizes


def test_equations_nobody_knows_are_read_through() -> None:
    from lxml import etree

    space = MATH.strip("{}")
    root = etree.fromstring(f"<m:oMath xmlns:m='{space}'><m:new><m:r><m:t>sin\u2061x</m:t></m:r></m:new></m:oMath>")
    assert latex(root) == "sin x"
