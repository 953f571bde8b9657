"""Tables of which pdfium gives the columns one below the other, all of them or one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.extract.pdf.cells import Cell, are_numbers, count_up, table_line
from pipelines.extract.pdf.lines import Line, median

_FEWEST_ROWS = 3
_SHORTEST_COLUMN = 5
_MOST_WORDS = 8  # of a cell


def tables_from_stacks(lines: Sequence[Line], stacks: Sequence[list[int]]) -> list[Line]:
    """Tables whose columns come one below the other: rows of short cells on the same base lines."""
    found: list[tuple[set[int], int, Line]] = []
    for group in _side_by_side(lines, [stack for stack in stacks if _may_be_column(lines, stack)]):
        if (table := _from_columns(lines, group)) is not None:
            members = {index for stack in group for index in stack}
            found.append((members, group[0][0], table))
    if not found:
        return list(lines)
    gone = set().union(*(members for members, _, _ in found))
    tables = {begin: table for _, begin, table in found}
    return [tables.get(index, line) for index, line in enumerate(lines) if index in tables or index not in gone]


def with_columns_beside(lines: list[Line]) -> list[Line]:
    """The lines, each cell of a column that stands apart after the row it belongs to."""
    rows = [index for index, line in enumerate(lines) if line.columns > 1 and not line.table]
    if len(rows) < _SHORTEST_COLUMN:
        return lines
    mates: dict[int, list[int]] = {}
    moved: set[int] = set()
    for found_stack in stack_up(lines):
        stack = [index for index in found_stack if lines[index].columns == 1]
        if len(stack) < _SHORTEST_COLUMN:
            continue
        if median(len(lines[index].text.split()) for index in stack) > 3:
            continue
        found = {index: mate for index in stack if (mate := _mate(lines, index, rows)) is not None}
        if len(found) >= 0.8 * len(stack):
            moved |= found.keys()
            for index, mate in found.items():
                mates.setdefault(mate, []).append(index)
    if not moved:
        return lines
    order = (place for index in range(len(lines)) if index not in moved for place in (index, *mates.get(index, ())))
    return [lines[index] for index in order]


def stack_up(lines: Sequence[Line]) -> list[list[int]]:
    """Runs of lines one below the other; a new one begins where the text goes on elsewhere."""
    stacks: list[list[int]] = []
    last: Line | None = None
    for index, line in enumerate(lines):
        if not line.upright or not line.size:
            last = None
            continue
        below = last is not None and 0.5 * line.size < last.last_bottom - line.bottom < 2.5 * line.size
        if below and last is not None and line.left < last.right and line.right > last.left:
            stacks[-1].append(index)
        else:
            stacks.append([index])
        last = line
    return stacks


def _may_be_column(lines: Sequence[Line], stack: Sequence[int]) -> bool:
    return len(stack) >= _FEWEST_ROWS and median(lines[index].text.count(" ") for index in stack) < _MOST_WORDS


def _side_by_side(lines: Sequence[Line], stacks: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Consecutive stacks that stand side by side and share most of their base lines."""
    group: list[list[int]] = []
    for stack in stacks:
        if group and not _is_beside(lines, group[-1], stack):
            yield group
            group = []
        group.append(stack)
    if group:
        yield group


def _is_beside(lines: Sequence[Line], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether most lines of `other` stand right of one of `one`, on the same base line."""
    if min(lines[index].left for index in other) < min(lines[index].left for index in one):
        return False
    shared = 0
    for index in other:
        line = lines[index]
        mates = [lines[mate] for mate in one if abs(lines[mate].bottom - line.bottom) <= 0.25 * line.size]
        if any(mate.right > line.left for mate in mates):
            return False
        shared += bool(mates)
    return shared >= 0.8 * len(other)


def _mate(lines: Sequence[Line], index: int, rows: Sequence[int]) -> int | None:
    """The row on whose base line, and beside which, a line stands."""
    line = lines[index]
    for row in rows:
        other = lines[row]
        if abs(other.bottom - line.bottom) <= 0.25 * line.size and (
            other.left >= line.right or other.right <= line.left
        ):
            return row
    return None


def _from_columns(lines: Sequence[Line], stacks: Sequence[Sequence[int]]) -> Line | None:
    if len(stacks) < 2 or any(lines[index].columns > 1 or lines[index].table for stack in stacks for index in stack):
        return None
    columns = [[Cell(lines[index].left, lines[index].right, lines[index].text) for index in stack] for stack in stacks]
    if count_up([cell.text for cell in columns[0]]):
        return None
    numbers = [are_numbers(column) for column in columns]
    words = [median(len(cell.text.split()) for cell in column) for column in columns]
    if not any(numbers) or sorted(words)[len(words) // 2] > 4 or max(words) > _MOST_WORDS:
        return None
    if len(stacks) == 2 and min(len(stack) for stack in stacks) < 5:
        return None
    size = lines[stacks[0][0]].size
    bottoms: list[float] = []
    for bottom in sorted((lines[index].bottom for stack in stacks for index in stack), reverse=True):
        if not bottoms or bottoms[-1] - bottom > 0.3 * size:
            bottoms.append(bottom)
    grid = [[""] * len(stacks) for _ in bottoms]
    for place, stack in enumerate(stacks):
        for index in stack:
            row = min(range(len(bottoms)), key=lambda row: abs(bottoms[row] - lines[index].bottom))
            grid[row][place] = f"{grid[row][place]} {lines[index].text}".strip()
    return table_line([lines[index] for stack in stacks for index in stack], grid)
