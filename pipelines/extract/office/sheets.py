"""Excel workbooks, new and old: every row of every sheet, hidden ones too, with the values as they are stored.

Read without `unstructured`, whose data frames round numbers to six digits and turn `7` above a gap to `7.0`.
"""

from __future__ import annotations

import datetime
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.errors import PermanentError
from pipelines.extract.archive import chain_of, entity_bomb
from pipelines.extract.tables import table_blocks
from pipelines.types import Block

_MOST_LONE = 8
_MIDNIGHT = datetime.time()
# Whatever the readers stumble over, having taken it for granted; `OSError` without a number is their own.
_DAMAGE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, OSError, SyntaxError, TypeError,
    ValueError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def xlsx_blocks(path: Path) -> Iterator[Block]:
    """A heading for each sheet and its rows as tables.

    Raises:
        PermanentError: `corrupt`, `bomb`.
    """
    import openpyxl
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    with _whole(), path.open("rb") as file:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        for sheet in book.worksheets:
            if isinstance(sheet, ReadOnlyWorksheet):
                # The range that a sheet states of itself may be too small.
                sheet.reset_dimensions()
                yield from _sheet(sheet.title, ([_cell(cell) for cell in row] for row in sheet.iter_rows()))
        book.close()


def xls_blocks(path: Path) -> Iterator[Block]:
    """The same for a workbook of Excel before 2007.

    Raises:
        PermanentError: `encrypted`, `corrupt`.
    """
    import xlrd
    from xlrd.compdoc import CompDocError

    with _whole(xlrd.XLRDError, CompDocError):
        book = xlrd.open_workbook(str(path), on_demand=True, logfile=_Silence())
        for index in range(book.nsheets):
            sheet = book.sheet_by_index(index)
            rows = ([_old_cell(cell, book.datemode) for cell in sheet.row(row)] for row in range(sheet.nrows))
            yield from _sheet(sheet.name, rows)
            book.unload_sheet(index)


@contextmanager
def _whole(*own: type[Exception]) -> Iterator[None]:
    """What the readers of workbooks raise about a damaged one, as the error that it is.

    Args:
        own: the errors that a reader raises on purpose.
    """
    expected: tuple[type[Exception], ...] = (*_DAMAGE, *own)
    try:
        yield
    except expected as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if any(isinstance(one, MemoryError) for one in chain_of(error)):
            raise
        if bomb := entity_bomb(error):
            raise bomb from error
        if isinstance(error, own) and "encrypted" in str(error).lower():
            raise PermanentError(
                "encrypted", "the workbook is protected by a password", "save it without a password"
            ) from error
        detail = " ".join(str(error).split())[:200]
        raise PermanentError(
            "corrupt",
            f"the workbook is damaged ({type(error).__name__}: {detail})",
            "open it in its own program and save it as .xlsx",
        ) from error


def _sheet(name: str, rows: Iterable[Sequence[str]]) -> Iterator[Block]:
    """The rows as tables; a title or a note above the header row, alone in its row, is no header."""
    yield Block("heading", name, level=2)
    remaining = iter(rows)
    lone: list[Sequence[str]] = []
    for row in remaining:
        filled = [cell for cell in row if cell.strip()]
        if len(filled) > 1 and lone:
            yield from (Block("paragraph", " ".join(one)) for one in lone)
            lone = []
        if filled:
            lone.append(row)
        if len(filled) > 1 or len(lone) > _MOST_LONE:
            break
    yield from table_blocks(chain(lone, remaining))


def _cell(cell: Any) -> str:
    value = cell.value
    if isinstance(value, int | float) and not isinstance(value, bool) and "%" in (cell.number_format or ""):
        return f"{_number(value * 100)}%"
    return _shown(value)


def _old_cell(cell: Any, datemode: int) -> str:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            return _shown(xlrd.xldate_as_datetime(cell.value, datemode))
        except (xlrd.XLDateError, OverflowError, ValueError):
            return _number(cell.value)
    if cell.ctype == xlrd.XL_CELL_BOOLEAN:
        return _shown(bool(cell.value))
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return str(xlrd.error_text_from_code.get(cell.value, ""))
    return _shown(cell.value)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == _MIDNIGHT else value.isoformat(" ", "seconds")
    return str(value)


def _number(value: float) -> str:
    """As a spreadsheet shows it: 15 significant digits, no exponent where it can be avoided."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:.15g}"
    return f"{value:.20f}".rstrip("0").rstrip(".") if "e-" in text and abs(value) > 1e-9 else text


class _Silence:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return
