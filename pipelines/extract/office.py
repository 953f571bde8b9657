"""Word, PowerPoint, Excel, OpenDocument text and EPUB, through `unstructured`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from pipelines.extract.archive import check_archive
from pipelines.extract.job import Job
from pipelines.extract.partition import partition, to_blocks
from pipelines.extract.strict import transitional
from pipelines.types import Block, Extracted

_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
_FACTS = {
    _DUBLIN_CORE + "title": "title",
    _DUBLIN_CORE + "creator": "author",
    _DUBLIN_CORE + "subject": "subject",
    _DUBLIN_CORE + "language": "lang",
    _DUBLIN_CORE + "date": "date",
    "{http://purl.org/dc/terms/}created": "created",
    "{http://purl.org/dc/terms/}modified": "modified",
    "{urn:oasis:names:tc:opendocument:xmlns:meta:1.0}creation-date": "created",
}
ROWS_PER_BLOCK = 50


def extract_docx(job: Job) -> Extracted:
    """Word: paragraphs, headings by style, tables, then footnotes and endnotes."""
    check_archive(job.path)
    with transitional(job.path) as readable:
        blocks = [*to_blocks(partition("docx", filename=str(readable))), *_notes(readable)]
        return _finished(readable, job.mime, blocks)


def extract_pptx(job: Job) -> Extracted:
    """PowerPoint: one page a slide, speaker's notes included."""
    check_archive(job.path)
    elements = partition("pptx", filename=str(job.path), include_slide_notes=True)
    return _finished(job.path, job.mime, list(to_blocks(elements, headings=range(1), paged=True)))


def extract_xlsx(job: Job) -> Extracted:
    """Excel: a heading for each sheet and its rows as tables."""
    check_archive(job.path)
    return _finished(job.path, job.mime, list(_sheets(job.path)))


def extract_xls(job: Job) -> Extracted:
    """Excel before 2007."""
    return Extracted(job.mime, None, tuple(_sheets(job.path)))


def extract_odt(job: Job) -> Extracted:
    """OpenDocument text."""
    check_archive(job.path)
    return _finished(job.path, job.mime, list(to_blocks(partition("odt", filename=str(job.path)))))


def extract_epub(job: Job) -> Extracted:
    """EPUB, chapter by chapter."""
    check_archive(job.path)
    return _finished(job.path, job.mime, list(to_blocks(partition("epub", filename=str(job.path)))))


def _finished(path: Path, mime: str, blocks: list[Block]) -> Extracted:
    facts = _facts(path)
    return Extracted(mime, facts.pop("title", None), tuple(blocks), metadata=facts)


def _sheets(path: Path) -> Iterator[Block]:
    sheet = None
    # Sub-tables would part a header row from its rows.
    for element in partition("xlsx", filename=str(path), find_subtable=False, include_header=False):
        name = element.metadata.page_name
        if name and name != sheet:
            sheet = name
            yield Block("heading", name, level=2)
        for block in to_blocks([element]):
            header, _, body = block.text.partition("\n")
            rows = body.splitlines()
            if block.kind != "table" or len(rows) <= ROWS_PER_BLOCK:
                yield block
                continue
            for start in range(0, len(rows), ROWS_PER_BLOCK):
                yield Block("table", "\n".join([header, *rows[start : start + ROWS_PER_BLOCK]]))


def _notes(path: Path) -> Iterator[Block]:
    """Footnotes and endnotes, which python-docx does not know."""
    for member in ("word/footnotes.xml", "word/endnotes.xml"):
        root = _member(path, member)
        if root is None:
            continue
        for note in root.iter(_WORD + "footnote", _WORD + "endnote"):
            if note.get(_WORD + "type") not in {"separator", "continuationSeparator", "continuationNotice"}:
                text = "".join(piece.text or "" for piece in note.iter(_WORD + "t"))
                yield Block("list", text)


def _facts(path: Path) -> dict[str, Any]:
    """Title, author and dates from the document's Dublin Core, wherever its format keeps it."""
    with zipfile.ZipFile(path) as archive:
        members = [
            name for name in archive.namelist() if name in {"docProps/core.xml", "meta.xml"} or name.endswith(".opf")
        ]
    facts: dict[str, Any] = {}
    for member in members:
        root = _member(path, member)
        for element in root.iter(*_FACTS) if root is not None else ():
            if element.text and element.text.strip():
                facts.setdefault(_FACTS[element.tag], element.text.strip())
    return facts


def _member(path: Path, name: str) -> Any:
    """One XML member, None where it is missing or not well-formed."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            return None
        try:
            return etree.fromstring(archive.read(name), parser)
        except etree.XMLSyntaxError:
            return None
