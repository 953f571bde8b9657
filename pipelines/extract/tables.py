"""How rows become the text of a table block: a Markdown table, its first row the header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pipelines.types import Block

ROWS_PER_BLOCK = 50


def table_text(rows: Iterable[Sequence[str | None]]) -> str:
    """Rows of cells as a Markdown table.

    Line breaks inside a cell become spaces and bars are escaped; rows without content, and empty cells at a
    row's end, are left out. The header is as wide as the widest row, so that no cell is without a column.
    """
    lines = []
    for row in rows:
        cells = [" ".join((cell or "").split()).replace("|", "\\|") for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(cells)
    if not lines:
        return ""
    width = max(map(len, lines))
    header = lines[0] + [""] * (width - len(lines[0]))
    return "\n".join(map(_line, [header, ["---"] * width, *lines[1:]]))


def table_blocks(rows: Iterable[Sequence[str | None]]) -> Iterator[Block]:
    """A long table as blocks of up to `ROWS_PER_BLOCK` rows; each repeats the header row, to be understood alone."""
    full = (row for row in rows if any(cell and cell.strip() for cell in row))
    header = next(full, None)
    if header is None:
        return
    part: list[Sequence[str | None]] = []
    whole = True
    for row in full:
        part.append(row)
        if len(part) == ROWS_PER_BLOCK:
            yield Block("table", table_text([header, *part]))
            part, whole = [], False
    if part or whole:
        yield Block("table", table_text([header, *part]))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
