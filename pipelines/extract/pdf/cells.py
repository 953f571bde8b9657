"""Cells of tables in PDFs, and what shows in their text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelines.extract.pdf.lines import Line
from pipelines.extract.tables import table_text
from pipelines.hidden import merge

_NUMBER = re.compile(r"[\W_]*(?:\w{0,3}[\W_]*)?\d[\d\s.,:/%'’\-–()]*[\W_]*\w{0,3}[\W_]*")


@dataclass(slots=True)
class Cell:
    """A piece of a line, with its left and right end in points."""

    left: float
    right: float
    text: str


def are_numbers(column: Sequence[Cell]) -> bool:
    """Whether most cells of a column are numbers, amounts or dates."""
    return sum(is_number(cell.text) for cell in column) >= 0.6 * len(column)


def is_number(text: str) -> bool:
    """Whether a cell is a number, perhaps with a sign, a unit or a currency."""
    return len(text) <= 24 and _NUMBER.fullmatch(text) is not None


def count_up(texts: Sequence[str]) -> bool:
    """Whether the texts are numbers that count: of lines, in the margin."""
    numbers = [int(text) for text in texts if text.isdecimal() and len(text) < 6]
    steps = [after - before for before, after in pairwise(numbers)]
    return len(numbers) >= 8 and len(numbers) == len(texts) and steps.count(1) >= 0.9 * len(steps)


def table_line(lines: Sequence[Line], grid: Sequence[Sequence[str]]) -> Line:
    """One line that stands for a table.

    Args:
        lines: those it is made of, at least one.
        grid: its rows of cells, the header first.
    """
    first = lines[0]
    return first._replace(
        text=table_text(grid),
        left=min(line.left for line in lines),
        right=max(line.right for line in lines),
        bottom=max(line.bottom for line in lines),
        last_bottom=min(line.last_bottom for line in lines),
        columns=2,
        table=True,
        hidden=merge(*(line.hidden for line in lines)),
    )
