"""Which function reads which format. A new format is one file with such a function and one line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pipelines import sniff
from pipelines.errors import PermanentError
from pipelines.extract.job import Job
from pipelines.extract.title import choose_title
from pipelines.hidden import kinds_of_characters, merge, warning
from pipelines.sanitise import sanitise, sanitise_blocks
from pipelines.types import Extracted, OcrPage

Extractor = Callable[[Job], Extracted]
"""Reads a file and returns its blocks as the parser gave them."""

Recogniser = Callable[[Job, Sequence[int]], Iterator[OcrPage]]
"""OCRs pages of a file, one after the other."""


@dataclass(frozen=True, slots=True)
class Format:
    """How one media type is read.

    Attributes:
        function: `module:function` under `pipelines.extract`; named, not imported, since parsers are heavy.
        label: what people call the format.
        isolated: whether it is read in a process of its own.
        recogniser: the function that OCRs single pages of it; empty where it has no pages to OCR.
    """

    function: str
    label: str
    isolated: bool = True
    recogniser: str = ""


FORMATS: dict[str, Format] = {
    sniff.TEXT: Format("plain:extract_plain", "plain text", isolated=False),
    sniff.CODE: Format("plain:extract_code", "source code", isolated=False),
    sniff.JSON: Format("plain:extract_code", "JSON", isolated=False),
    sniff.XML: Format("plain:extract_code", "XML", isolated=False),
    sniff.MARKDOWN: Format("markdown:extract_markdown", "Markdown", isolated=False),
    sniff.CSV: Format("delimited:extract_delimited", "CSV"),
    sniff.TSV: Format("delimited:extract_delimited", "TSV"),
    sniff.HTML: Format("html:extract_html", "HTML"),
    sniff.PDF: Format("pdf:extract_pdf", "PDF", recogniser="pdf:recognise_pdf"),
    sniff.DOCX: Format("office:extract_docx", "Word"),
    sniff.PPTX: Format("office:extract_pptx", "PowerPoint"),
    sniff.XLSX: Format("office:extract_xlsx", "Excel"),
    sniff.ODT: Format("office:extract_odt", "OpenDocument text"),
    sniff.ODS: Format("office:extract_ods", "OpenDocument spreadsheet"),
    sniff.ODP: Format("office:extract_odp", "OpenDocument presentation"),
    sniff.EPUB: Format("office:extract_epub", "EPUB"),
    sniff.XLS: Format("office:extract_xls", "old Excel"),
    sniff.EMAIL: Format("mail:extract_eml", "e-mail"),
    sniff.MSG: Format("mail:extract_msg", "Outlook message"),
    sniff.MBOX: Format("mail:extract_mbox", "mailbox"),
    sniff.RTF: Format("office.rtf:extract_rtf", "RTF"),
    **dict.fromkeys(
        ("image/png", "image/jpeg", "image/tiff", "image/webp", "image/bmp", "image/gif"),
        Format("image:extract_image", "image", recogniser="image:recognise_image"),
    ),
}

_UNSUPPORTED: dict[str, tuple[str, str]] = {
    sniff.DOC: ("an old Word document (.doc)", "save it as .docx"),
    sniff.PPT: ("an old PowerPoint presentation (.ppt)", "save it as .pptx"),
    sniff.XLSB: ("a binary Excel workbook (.xlsb)", "save it as .xlsx"),
    sniff.ZIP: ("a ZIP archive", "unpack it into the folder"),
    sniff.OLE: ("a Microsoft compound file that holds no known document", "convert it to PDF or plain text"),
    "image/heic": ("a HEIC image", "convert it to JPEG or PNG"),
    "image/avif": ("an AVIF image", "convert it to JPEG or PNG"),
    "application/postscript": ("a PostScript file", "convert it to PDF"),
}


def format_of(mime: str) -> Format:
    """The format registered for a media type.

    Raises:
        PermanentError: `encrypted` for an encrypted Office file, `corrupt` for a broken one, else
        `unsupported_format`,
            naming the format.
    """
    found = FORMATS.get(mime)
    if found is not None:
        return found
    if mime == sniff.ENCRYPTED_OFFICE:
        raise PermanentError(
            "encrypted",
            "the Office file is protected by a password",
            "save it without a password, then drop it again",
        )
    if mime == sniff.BROKEN:
        raise PermanentError(
            "corrupt",
            "the file is damaged or cut short: its content is not what its name or its beginning promises",
            "copy it again in full, or open it in its own program and save it again",
        )
    if mime == sniff.UNKNOWN:
        raise PermanentError(
            "unsupported_format",
            "the file is neither a known document format nor text",
            "convert it to PDF, HTML or plain text",
        )
    what, remedy = _UNSUPPORTED.get(mime, (f"of the kind {mime}", "convert it to PDF, HTML or plain text"))
    raise PermanentError("unsupported_format", f"the file is {what}, which is not supported", remedy)


def run_extractor(job: Job) -> Extracted:
    """Read a file in this process, sanitise what its parser returned, and settle its title.

    Raises:
        PermanentError: the file cannot be read, or holds neither text nor other documents (`no_text`).
    """
    raw = cast(Extractor, _load(format_of(job.mime).function))(job)
    job.progress(0, 0)
    if raw.awaiting:
        return raw
    blocks = sanitise_blocks(raw.blocks)
    attachments = tuple(job.attachments.found)
    if not blocks and not attachments:
        raise _no_text(raw)
    metadata = dict(raw.metadata)
    metadata["attachments"] = [one.name for one in attachments]
    metadata["warnings"] = [*metadata.get("warnings", ()), *job.attachments.warnings, *filter(None, [warning(blocks)])]
    # What stands before every chunk, or beside it, cannot be said of one of them.
    beside = [raw.title, *metadata.values()]
    if kinds := merge(*(kinds_of_characters(text) for text in beside if isinstance(text, str))):
        metadata["hidden_text"], metadata["hidden"] = True, list(kinds)
    return replace(
        raw,
        blocks=blocks,
        title=choose_title(raw.title, blocks),
        metadata=_clean_metadata(metadata),
        attachments=attachments,
    )


def run_recogniser(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    """OCR some pages of a file in this process, one after the other; their text is sanitised.

    Raises:
        PermanentError: the file cannot be read, or there is no OCR (`ocr_unavailable`).
    """
    recogniser = cast(Recogniser, _load(format_of(job.mime).recogniser))
    for page in recogniser(job, pages):
        yield replace(page, paragraphs=tuple(filter(None, map(sanitise, page.paragraphs))))


def _load(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(f"pipelines.extract.{module}"), name)


def _no_text(raw: Extracted) -> PermanentError:
    unread = [page for page in raw.pages if page.unread]
    if unread:
        numbers = ", ".join(str(page.number) for page in unread[:5]) + (" …" if len(unread) > 5 else "")
        advice = next((page.warning for page in unread if "install" in page.warning), "")
        return PermanentError(
            "no_text",
            f"no text was found; page {numbers} could not be read ({unread[0].problem or unread[0].reason})",
            advice
            or "scan it again at 300 dpi, name its language in GRISTMILL_OCR_LANGUAGES, or raise "
            "GRISTMILL_OCR_PAGE_SECONDS",
        )
    return PermanentError("no_text", "no text was found in the file", "nothing to do if it is blank on purpose")


def _clean_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return sanitise(value)
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        if isinstance(value, dict):
            return {sanitise(str(key)): clean(item) for key, item in value.items()}
        return value

    return {key: cleaned for key, value in metadata.items() if (cleaned := clean(value)) not in (None, "", [], {})}
