"""CSV and TSV as tables."""

from __future__ import annotations

import csv
import io

from pipelines import sniff
from pipelines.extract.job import Job
from pipelines.extract.plain import read_text
from pipelines.extract.tables import table_text
from pipelines.types import Block, Extracted

ROWS_PER_BLOCK = 50
_LONGEST_CELL = 2**24


def extract_delimited(job: Job) -> Extracted:
    """Table blocks of up to `ROWS_PER_BLOCK` rows; each repeats the header row, to be understood alone."""
    text, encoding = read_text(job.path)
    csv.field_size_limit(_LONGEST_CELL)
    rows = [
        row for row in csv.reader(io.StringIO(text), delimiter=_delimiter(text, job.mime)) if any(map(str.strip, row))
    ]
    if not rows:
        return Extracted(job.mime, None, ())
    header, body = rows[0], rows[1:]
    parts = [body[start : start + ROWS_PER_BLOCK] for start in range(0, len(body), ROWS_PER_BLOCK)] or [[]]
    blocks = tuple(Block("table", table_text([header, *part])) for part in parts)
    return Extracted(job.mime, None, blocks, metadata={"encoding": encoding, "rows": len(body)})


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
