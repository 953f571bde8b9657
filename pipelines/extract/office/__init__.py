"""Word, PowerPoint, Excel, OpenDocument and EPUB: text and tables, embedded files, pictures of text."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.extract.archive import check_archive
from pipelines.extract.job import Job
from pipelines.extract.office.embedded import take_embedded
from pipelines.extract.office.opendocument import aside_blocks, master_blocks, presentation_blocks, spreadsheet_blocks
from pipelines.extract.office.pandoc import convert_file
from pipelines.extract.office.partition import partition, to_blocks
from pipelines.extract.office.pictures import Picture, PictureReader
from pipelines.extract.office.relations import targets
from pipelines.extract.office.sheets import xls_blocks, xlsx_blocks
from pipelines.extract.office.strict import transitional
from pipelines.extract.office.unseen import text_pieces, word_pieces
from pipelines.extract.office.word import member, notes, plain_word
from pipelines.hidden import mark_pieces
from pipelines.types import Block, Extracted

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
_DRAWN = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_PICTURE = re.compile(
    r"^(?:word/media/|xl/media/|Pictures/|media/|.*images?/).*\.(?:png|jpe?g|tiff?|bmp|gif|webp)$", re.I
)
_SLIDE = re.compile(r"^ppt/slides/slide(\d+)\.xml$")
_LAYOUT = re.compile(r"/slideLayouts/[^/]+\.xml$")
_DIAGRAM = re.compile(r"/(?:diagrams/data|charts/chart)\d*\.xml$")
_DRAWING = re.compile(r"^(?:xl/drawings/drawing\d*|word/diagrams/data\d*|(?:word|xl)/charts/chart\d*)\.xml$")


def extract_docx(job: Job) -> Extracted:
    """Word: paragraphs, headings by style, tables, equations, then footnotes, endnotes and comments."""
    check_archive(job.path)
    with transitional(job.path) as readable:
        return _finished(job, readable, _word_blocks(readable))


def extract_pptx(job: Job) -> Extracted:
    """PowerPoint: one page a slide, speaker's notes and diagrams included."""
    check_archive(job.path)
    with transitional(job.path) as readable:
        elements = partition("pptx", filename=str(readable), include_slide_notes=True)
    blocks = list(to_blocks(elements, headings=range(1), paged=True))
    pictures: list[Picture] = []
    for page, parts in _slides(job.path):
        for part in parts:
            if _DIAGRAM.search(part):
                blocks += _drawn(job.path, part, page)
        with zipfile.ZipFile(job.path) as archive:
            held = set(archive.namelist())
            pictures += [Picture(archive.read(part), page) for part in parts if "/media/" in part and part in held]
    return _finished(job, job.path, blocks, pictures, _master_blocks(job.path))


def extract_xlsx(job: Job) -> Extracted:
    """Excel: a heading for each sheet and its rows as tables, then what is written on shapes."""
    check_archive(job.path)
    with transitional(job.path) as readable:
        return _finished(job, readable, [*xlsx_blocks(readable), *_all_drawn(readable)])


def extract_xls(job: Job) -> Extracted:
    """Excel before 2007."""
    return Extracted(job.mime, None, tuple(xls_blocks(job.path)))


def extract_odt(job: Job) -> Extracted:
    """OpenDocument text, read as the Word document that pandoc makes of it.

    Raises:
        PermanentError: `corrupt`, besides what `check_archive` raises.
    """
    check_archive(job.path)
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        made = Path(folder) / "document.docx"
        convert_file(job.path, "odt", "docx", made)
        blocks = [*_word_blocks(made), *aside_blocks(job.path)]
        return _finished(job, job.path, mark_pieces(blocks, text_pieces(job.path)))


def extract_ods(job: Job) -> Extracted:
    """OpenDocument spreadsheet."""
    check_archive(job.path)
    return _finished(job, job.path, list(spreadsheet_blocks(job.path)))


def extract_odp(job: Job) -> Extracted:
    """OpenDocument presentation."""
    check_archive(job.path)
    return _finished(job, job.path, list(presentation_blocks(job.path)), masters=master_blocks(job.path))


def extract_epub(job: Job) -> Extracted:
    """EPUB, chapter by chapter."""
    check_archive(job.path)
    return _finished(job, job.path, list(to_blocks(partition("epub", filename=str(job.path)))))


def _word_blocks(path: Path) -> list[Block]:
    with plain_word(path) as plain:
        blocks = [*to_blocks(partition("docx", filename=str(plain))), *_all_drawn(path), *notes(path)]
    return mark_pieces(blocks, word_pieces(path))


def _finished(
    job: Job,
    path: Path,
    blocks: list[Block],
    pictures: Sequence[Picture] | None = None,
    masters: Iterable[Block] = (),
) -> Extracted:
    """The document with its pictures read; what its masters say counts only where nothing else is said."""
    take_embedded(path, job.attachments)
    reader = PictureReader(job.rules)
    for found in reader.read(_pictures(path) if pictures is None else pictures):
        place = len(blocks)
        if found.page is not None:
            place = next((index for index, block in enumerate(blocks) if (block.page or 0) > found.page), place)
        blocks.insert(place, found)
    if reader.unavailable and not blocks and not job.attachments.found:
        raise reader.unavailable
    blocks = blocks or list({block.text: block for block in masters}.values())
    facts = _facts(path) | {"warnings": reader.warnings}
    return Extracted(job.mime, facts.pop("title", None), tuple(blocks), metadata=facts)


def _pictures(path: Path) -> Iterator[Picture]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _PICTURE.match(name):
                yield Picture(archive.read(name))


def _slides(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each slide's number and the parts that it refers to, in the order of the presentation."""
    root = member(path, "ppt/presentation.xml")
    placed = targets(path, "ppt/presentation.xml")
    identity = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
    order = [placed.get(slide.get(identity), "") for slide in root.iter("{*}sldId")] if root is not None else []
    for number, slide in enumerate(order, 1):
        if _SLIDE.match(slide):
            yield number, list(targets(path, slide).values())


def _master_blocks(path: Path) -> Iterator[Block]:
    """What the masters of the slides show of their own.

    Their placeholders hold only prompts, which are never shown.
    """
    for page, parts in _slides(path):
        shown = []
        for layout in filter(_LAYOUT.search, parts):
            root = member(path, layout)
            shown.append(root)
            if root is not None and root.get("showMasterSp") not in {"0", "false"}:
                shown += [member(path, master) for master in targets(path, layout, "slideMaster").values()]
        for root in shown:
            for shape in root.iter("{*}sp") if root is not None else ():
                if shape.find("{*}nvSpPr/{*}nvPr/{*}ph") is None:
                    yield from _written(shape, page)


def _all_drawn(path: Path) -> Iterator[Block]:
    with zipfile.ZipFile(path) as archive:
        parts = [name for name in archive.namelist() if _DRAWING.match(name)]
    for part in parts:
        yield from _drawn(path, part)


def _drawn(path: Path, part: str, page: int | None = None) -> Iterator[Block]:
    """What is written on the shapes of a drawing, a diagram or a chart."""
    root = member(path, part)
    if root is not None:
        yield from _written(root, page)


def _written(node: Any, page: int | None) -> Iterator[Block]:
    lines = ["".join(text.text or "" for text in line.iter(_DRAWN + "t")) for line in node.iter(_DRAWN + "p")]
    if text := "\n".join(filter(None, map(str.strip, lines))):
        yield Block("paragraph", text, page=page)


def _facts(path: Path) -> dict[str, Any]:
    """Title, author and dates from the document's Dublin Core, wherever its format keeps it."""
    with zipfile.ZipFile(path) as archive:
        members = [
            name for name in archive.namelist() if name in {"docProps/core.xml", "meta.xml"} or name.endswith(".opf")
        ]
    facts: dict[str, Any] = {}
    for name in members:
        root = member(path, name)
        for element in root.iter(*_FACTS) if root is not None else ():
            if element.text and element.text.strip():
                facts.setdefault(_FACTS[element.tag], element.text.strip())
    return facts
