"""How rows become the text of a table block: one line a row, cells between bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CELL_SEPARATOR = " | "


def table_text(rows: Iterable[Sequence[str | None]]) -> str:
    """Rows of cells as text; line breaks inside a cell become spaces, rows without content are left out."""
    lines = []
    for row in rows:
        cells = [" ".join((cell or "").split()) for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(CELL_SEPARATOR.join(cells))
    return "\n".join(lines)
