"""CSV and TSV as tables."""

from __future__ import annotations

import csv
import io
import re

from pipelines import sniff
from pipelines.errors import PermanentError
from pipelines.extract.job import Job
from pipelines.extract.plain import read_text
from pipelines.extract.tables import table_blocks
from pipelines.types import Extracted

_TOLD = re.compile(r'"?sep=([,;\t|])"?\n', re.IGNORECASE)  # Excel's own first line
_LONGEST_CELL = 2**24


def extract_delimited(job: Job) -> Extracted:
    """Table blocks, each with the header row.

    Raises:
        PermanentError: `bomb`, where a cell has more than 16 MiB.
    """
    text, encoding = read_text(job.path)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        rows = _rows(text, job.mime)
    except csv.Error as error:
        raise PermanentError(
            "bomb",
            f"a cell of the table has more than {_LONGEST_CELL:,} characters, which no honest table has",
            "close the quotation mark that makes one cell of many, or save the file as plain text (.txt)",
        ) from error
    if not rows:
        return Extracted(job.mime, None, ())
    return Extracted(job.mime, None, tuple(table_blocks(rows)), metadata={"encoding": encoding, "rows": len(rows) - 1})


def _rows(text: str, mime: str) -> list[list[str]]:
    told = _TOLD.match(text)
    delimiter = told[1] if told else _delimiter(text, mime)
    text = text[told.end() :] if told else text
    # Programs that part cells by tabs seldom quote them: a lone quotation mark is an inch.
    inches = delimiter == "\t" and any(line.count('"') % 2 for line in text.splitlines())
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_NONE if inches else csv.QUOTE_MINIMAL)
    return [row for row in reader if any(map(str.strip, row))]


def _delimiter(text: str, mime: str) -> str:
    """The separator that parts the first lines into the most equal number of cells."""
    if mime == sniff.TSV:
        return "\t"
    lines = text.splitlines()[:20]

    def score(delimiter: str) -> tuple[int, int]:
        counts = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        usual = max(set(counts), key=counts.count) if counts else 1
        return (counts.count(usual) if usual > 1 else 0, usual)

    return max((",", ";", "\t", "|"), key=score)
