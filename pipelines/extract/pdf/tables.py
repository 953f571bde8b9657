"""Which lines of a PDF page are the rows of a table, or of columns that run side by side.

pdfium gives the rows of some tables as lines with wide gaps, and the columns of others one below the other.
Rows become a table only where their cells stand in the same columns, row after row: a bar in running text would
cut it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, lt

from pipelines.extract.pdf.cells import Cell, are_numbers, count_up, is_number, table_line
from pipelines.extract.pdf.lines import Line, Ruler, median
from pipelines.extract.pdf.stacks import stack_up, tables_from_stacks, with_columns_beside

_WORD = re.compile(r"\S+")
_GAP = 0.9  # font sizes between two cells of a line that has wider gaps
_FEWEST_ROWS = 3
_MOST_LINES = 1_500  # a page of more is a drawing, and each would be compared with each
_MOST_BETWEEN = 4  # lines of one piece between two rows
_COLUMNS, _BOTTOM = attrgetter("columns"), attrgetter("bottom")
_LONGEST_HEADER = 4


@dataclass(slots=True)
class _Row:
    """Cells on one base line, and the lines (by index) they come from."""

    cells: list[Cell]
    bottom: float
    size: float
    members: list[int]

    @property
    def left(self) -> float:
        return self.cells[0].left


def find_tables(lines: Sequence[Line], ruler: Ruler) -> list[Line]:
    """The lines of a page, those of a table replaced by one line that holds it as Markdown.

    Columns of running text that were read across come one after the other, and numbers that count the lines in
    the margin after the lines.
    """
    if len(lines) > _MOST_LINES:
        return list(lines)
    if max(map(_COLUMNS, lines), default=1) == 1:
        bottoms = list(map(_BOTTOM, lines))
        if not any(map(lt, bottoms, bottoms[1:])):
            return list(lines)
        stacks = stack_up(lines)
        if len(stacks) < 2:
            return list(lines)
        return tables_from_stacks(lines, stacks)
    found = with_columns_beside(tables_from_stacks(lines, stack_up(lines)))
    result: list[Line] = []
    run: list[Line] = []
    plain = 0
    for line in found:
        plain = 0 if line.columns > 1 else plain + 1
        if line.table or plain > _MOST_BETWEEN or (run and not _near(run, line)):
            result += _read_run(run, ruler)
            run, plain = [], 0
        if line.table:
            result.append(line)
        else:
            run.append(line)
    return result + _read_run(run, ruler)


def _near(run: Sequence[Line], line: Line) -> bool:
    """Whether a line may be of the table that the lines of `run` are of."""
    size = max(line.size, run[-1].size)
    if not size or not line.upright or abs(line.size - run[-1].size) > 0.35 * size:
        return False
    # Header cells are not always drawn in their order.
    return -3 * size < run[-1].last_bottom - line.bottom < 4.6 * size


def _read_run(run: list[Line], ruler: Ruler) -> list[Line]:
    wide = [index for index, line in enumerate(run) if line.columns > 1]
    if len(wide) < 2:
        return run
    rows = _rows(run, ruler)
    many = [row for row in rows if len(row.cells) > 1]
    if len(many) < 2:
        return run
    if (columns := _columns(many)) is None:
        return run
    if _are_line_numbers(many):
        return _without_line_numbers(run, rows)
    first = next(index for index, row in enumerate(rows) if len(row.cells) > 1)
    last = next(index for index in range(len(rows) - 1, -1, -1) if len(rows[index].cells) > 1)
    if _are_prose(many, columns):
        return _one_after_the_other(run, rows[first : last + 1])
    if not _convince(many, columns):
        return run
    while last + 1 < len(rows) and _is_continuation(rows[last + 1], rows[last], columns):
        last += 1
    grid = _grid(rows[first : last + 1], columns)
    if grid is None:
        return run
    members = [index for row in rows[first : last + 1] for index in row.members]
    table = table_line([run[index] for index in members], grid)
    inside = set(members)
    begin = min(members)
    return [
        *(line for index, line in enumerate(run) if index not in inside and index < begin),
        table,
        *(line for index, line in enumerate(run) if index not in inside and index > begin),
    ]


def _rows(run: Sequence[Line], ruler: Ruler) -> list[_Row]:
    """The rows that the lines make up, from the top: lines on one base line are cells of the same."""
    rows: list[_Row] = []
    for index, line in enumerate(run):
        cells = _cells(line, ruler)
        for row in reversed(rows):
            if abs(row.bottom - line.bottom) <= 0.3 * line.size and all(
                cell.left >= other.right or cell.right <= other.left for cell in cells for other in row.cells
            ):
                row.cells = sorted([*row.cells, *cells], key=lambda cell: cell.left)
                row.members.append(index)
                break
        else:
            rows.append(_Row(cells, line.bottom, line.size, [index]))
    return sorted(rows, key=lambda row: -row.bottom)


def _cells(line: Line, ruler: Ruler) -> list[Cell]:
    if line.columns < 2 or line.start < 0 or max(line.text) > "\uffff":
        return [Cell(line.left, line.right, line.text)]
    cells: list[Cell] = []
    for found in _WORD.finditer(line.text):
        left = ruler.box(line.start + found.start())[0]
        right = ruler.box(line.start + found.end() - 1)[2]
        if cells and left - cells[-1].right <= _GAP * line.size:
            cells[-1].right = max(right, cells[-1].right)
            cells[-1].text += " " + found.group()
        else:
            cells.append(Cell(left, right, found.group()))
    return cells


def _columns(rows: Sequence[_Row]) -> list[tuple[float, float]] | None:
    """Left and right end of each column, by the rows that have the most cells; None where these are no table's.

    Some rows have gaps, and a header may have more cells than the rows below it.
    """
    counts = [len(row.cells) for row in rows]
    for wanted in sorted(set(counts), reverse=True):
        full = [row for row in rows if len(row.cells) == wanted]
        if len(full) < (2 if wanted >= 4 else _FEWEST_ROWS):
            continue
        columns = [
            (min(row.cells[index].left for row in full), max(row.cells[index].right for row in full))
            for index in range(wanted)
        ]
        if all(before[1] < after[0] for before, after in pairwise(columns)):
            return columns
    return None


def _convince(rows: Sequence[_Row], columns: Sequence[tuple[float, float]]) -> bool:
    full = [row for row in rows if len(row.cells) == len(columns)]
    cells = [[row.cells[index] for row in full] for index in range(len(columns))]
    if any(sum(any(map(str.isalnum, cell.text)) for cell in column) < 0.5 * len(column) for column in cells):
        return False
    size = median(row.size for row in rows)
    aligned = sum(_is_aligned(column, size) for column in cells)
    if len(columns) == 2:
        return aligned == 2 and any(are_numbers(column) for column in cells)
    return aligned >= 0.75 * len(columns)


def _is_aligned(column: Sequence[Cell], size: float) -> bool:
    """Whether most cells agree in their left end, right end or middle; a header may stand elsewhere."""
    for ends in (
        [cell.left for cell in column],
        [cell.right for cell in column],
        [(cell.left + cell.right) / 2 for cell in column],
    ):
        middle = median(ends)
        if sum(abs(end - middle) <= 0.6 * size for end in ends) >= 0.7 * len(ends):
            return True
    return False


def _are_prose(rows: Sequence[_Row], columns: Sequence[tuple[float, float]]) -> bool:
    """Whether the columns are running text that was read across: long lines of many words."""
    full = [row for row in rows if len(row.cells) == len(columns)]
    if len(full) < 5 or len(columns) > 3:
        return False
    return all(
        median(len(row.cells[index].text.split()) for row in full) >= 4
        and median(row.cells[index].right - row.cells[index].left for row in full)
        >= 0.8 * (columns[index][1] - columns[index][0])
        for index in range(len(columns))
    )


def _one_after_the_other(run: Sequence[Line], rows: Sequence[_Row]) -> list[Line]:
    members = {index for row in rows for index in row.members}
    width = max(len(row.cells) for row in rows)
    middles = _middles([row for row in rows if len(row.cells) == width])
    columns: list[list[Line]] = [[] for _ in range(width)]
    for row in rows:
        like = run[row.members[0]]
        for cell in row.cells:
            place = sum(cell.left > middle for middle in middles)
            piece = like._replace(text=cell.text, left=cell.left, right=cell.right, columns=1, start=-1)
            columns[place].append(piece)
    before = [line for index, line in enumerate(run) if index < min(members)]
    after = [line for index, line in enumerate(run) if index > min(members) and index not in members]
    return [*before, *(line for column in columns for line in column), *after]


def _middles(full: Sequence[_Row]) -> list[float]:
    return [
        (max(row.cells[index].right for row in full) + min(row.cells[index + 1].left for row in full)) / 2
        for index in range(len(full[0].cells) - 1)
    ]


def _grid(rows: Sequence[_Row], columns: Sequence[tuple[float, float]]) -> list[list[str]] | None:
    """Rows of cells; None where a line runs across the columns, so that no table holds it."""
    grid: list[list[str]] = []
    above: _Row | None = None
    body = False
    for row in rows:
        cells = [""] * len(columns)
        for cell in row.cells:
            place = _place(cell, columns)
            cells[place] = f"{cells[place]} {cell.text}".strip()
        if len(row.cells) == 1 and len(columns) > 2 and _spans(row.cells[0], columns):
            return None
        digits = any(is_number(cell) for cell in cells if cell)
        heads = not body and not digits and len(grid) == 1 and _heads(row, above, len(columns))
        if heads or (above is not None and _is_continuation(row, above, columns)):
            grid[-1] = [f"{old} {new}".strip() for old, new in zip(grid[-1], cells, strict=True)]
        else:
            grid.append(cells)
            body = body or digits
        above = row
    return grid


def _heads(row: _Row, above: _Row | None, width: int) -> bool:
    """Whether a row goes on with a header that has more than one line."""
    return above is not None and len(row.cells) < width and above.bottom - row.bottom <= 2.2 * row.size


def _place(cell: Cell, columns: Sequence[tuple[float, float]]) -> int:
    """The column a cell overlaps first, else the nearest."""
    for index, (left, right) in enumerate(columns):
        if cell.left < right and cell.right > left:
            return index
    return min(
        range(len(columns)),
        key=lambda index: min(abs(cell.left - columns[index][1]), abs(columns[index][0] - cell.right)),
    )


def _spans(cell: Cell, columns: Sequence[tuple[float, float]]) -> bool:
    return sum(cell.left < right and cell.right > left for left, right in columns) > 2


def _is_continuation(row: _Row, above: _Row, columns: Sequence[tuple[float, float]]) -> bool:
    """Whether a row is the next line of a cell of the row above it."""
    if len(row.cells) != 1 or above.bottom - row.bottom > 1.6 * row.size or is_number(row.cells[0].text):
        return False
    place = _place(row.cells[0], columns)
    return place > 0 and not _spans(row.cells[0], columns) and place in {_place(cell, columns) for cell in above.cells}


def _are_line_numbers(rows: Sequence[_Row]) -> bool:
    """Whether the first cells count the lines, in the margin."""
    counted = count_up([row.cells[0].text for row in rows])
    return counted and sum(len(row.cells) == 2 for row in rows) >= 0.8 * len(rows)


def _without_line_numbers(run: Sequence[Line], rows: Sequence[_Row]) -> list[Line]:
    lines: list[Line] = []
    numbers: list[str] = []
    for row in rows:
        like = run[row.members[0]]
        cells = row.cells
        if cells[0].text.isdecimal():
            numbers.append(cells[0].text)
            cells = cells[1:]
        if cells:
            text = " ".join(cell.text for cell in cells)
            lines.append(like._replace(text=text, left=cells[0].left, right=cells[-1].right, columns=1, start=-1))
    return [*lines, run[-1]._replace(text=" ".join(numbers), columns=1, start=-1, bottom=0.0, last_bottom=0.0)]
