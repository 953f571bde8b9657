"""OpenDocument spreadsheets and presentations (ODF 1.3), which pandoc and `unstructured` do not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.errors import PermanentError
from pipelines.extract.office.word import member
from pipelines.extract.tables import table_blocks
from pipelines.types import Block

_URN = "{{urn:oasis:names:tc:opendocument:xmlns:{}:1.0}}"
_OFFICE, _TEXT, _TABLE, _DRAW, _SHOW, _STYLE = (
    _URN.format(name) for name in ("office", "text", "table", "drawing", "presentation", "style")
)
_NAMED, _MASTER = _STYLE + "name", _STYLE + "master-page"
_CELLS = (_TABLE + "table-cell", _TABLE + "covered-table-cell")
_LINES = (_TEXT + "p", _TEXT + "h")
_SHAPES = tuple(_DRAW + name for name in ("custom-shape", "rect", "ellipse", "circle", "polygon", "connector", "line"))
_MOST_REPEATED = 1_000


def spreadsheet_blocks(path: Path) -> Iterator[Block]:
    """A heading for each sheet and its rows as tables.

    Raises:
        PermanentError: `corrupt`.
    """
    for sheet in _body(path).iter(_TABLE + "table"):
        yield Block("heading", sheet.get(_TABLE + "name", ""), level=2)
        yield from table_blocks(_rows(sheet))


def presentation_blocks(path: Path) -> Iterator[Block]:
    """One page a slide: its title, what is written on it, its tables, the speaker's notes.

    Raises:
        PermanentError: `corrupt`.
    """
    for page, slide in enumerate(_body(path).iter(_DRAW + "page"), 1):
        notes = slide.find(_SHOW + "notes")
        if notes is not None:
            slide.remove(notes)
        for part in (slide, notes):
            for shape in part if part is not None else ():
                yield from _shape(shape, page)


def master_blocks(path: Path) -> Iterator[Block]:
    """What the masters of the slides show of their own: footers, words beside the placeholders.

    Raises:
        PermanentError: `corrupt`.
    """
    styles = member(path, "styles.xml")
    named = {} if styles is None else {one.get(_NAMED): one for one in styles.iter(_MASTER)}
    for page, slide in enumerate(_body(path).iter(_DRAW + "page"), 1):
        master = named.get(slide.get(_DRAW + "master-page-name"))
        for shape in master if master is not None else ():
            if shape.tag != _SHOW + "notes" and shape.get(_SHOW + "class") in {None, "header", "footer"}:
                yield from _shape(shape, page)


def aside_blocks(path: Path) -> Iterator[Block]:
    """What pandoc leaves out of a text: the words on its shapes, and its comments.

    Raises:
        PermanentError: `corrupt`.
    """
    for aside in _body(path).iter(*_SHAPES, _OFFICE + "annotation"):
        text = "\n".join(filter(None, (_text(line).strip() for line in aside.iter(*_LINES))))
        if text and aside.tag == _OFFICE + "annotation":
            yield Block("list", f"Comment ({aside.findtext('{*}creator', '')}): {text}")
        elif text:
            yield Block("paragraph", text)


def _shape(shape: Any, page: int) -> Iterator[Block]:
    table = shape.find(".//" + _TABLE + "table")
    if table is not None:
        for block in table_blocks(_rows(table)):
            yield Block(block.kind, block.text, page=page)
        return
    title = shape.get(_SHOW + "class") == "title"
    lines = [text for line in shape.iter(*_LINES) if (text := _text(line).strip())]
    if title and lines:
        yield Block("heading", " ".join(lines), level=1, page=page)
        return
    listed = next(shape.iter(_TEXT + "list-item"), None) is not None
    for line in lines:
        yield Block("list" if listed else "paragraph", line, page=page)


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.iter(_TABLE + "table-row"):
        cells: list[str] = []
        for cell in row.iterchildren(*_CELLS):
            value = _value(cell)
            # Sheets end in a cell, and in a row, that stand for all the empty ones to the edge.
            cells += [value] * min(int(cell.get(_TABLE + "number-columns-repeated", "1")), _MOST_REPEATED)
        if any(cells):
            for _ in range(min(int(row.get(_TABLE + "number-rows-repeated", "1")), _MOST_REPEATED)):
                yield cells


def _value(cell: Any) -> str:
    day = cell.get(_OFFICE + "date-value")
    if day:
        return str(day).removesuffix("T00:00:00").replace("T", " ")
    shown = "\n".join(_text(line) for line in cell.iterchildren(*_LINES))
    if cell.get(_OFFICE + "value-type") == "float" and cell.get(_OFFICE + "value"):
        return str(cell.get(_OFFICE + "value"))
    return shown


def _text(line: Any) -> str:
    pieces = []
    for node in line.iter():
        if node.tag == _TEXT + "s":
            pieces.append(" " * min(int(node.get(_TEXT + "c", "1")), _MOST_REPEATED))
        elif node.tag == _TEXT + "tab":
            pieces.append(" ")
        elif node.tag == _TEXT + "line-break":
            pieces.append("\n")
        if isinstance(node.tag, str):
            pieces.append(node.text or "")
        if node is not line:
            pieces.append(node.tail or "")
    return "".join(pieces)


def _body(path: Path) -> Any:
    root = member(path, "content.xml")
    if root is None:
        raise PermanentError(
            "corrupt", "the document has no readable content", "open it in its own program and save it again"
        )
    return root
