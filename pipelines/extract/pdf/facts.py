"""What a PDF holds beside its pages, as pdfium tells it: title, author, dates, files within."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?(?:([+\-Z])(?:(\d{2})'?(?:(\d{2})'?)?)?)?")


def read_facts(document: pdfium.PdfDocument) -> dict[str, Any]:
    """Title, author, subject, keywords, dates (ISO 8601): what there is of them."""
    found: dict[str, Any] = {}
    for key in ("Title", "Author", "Subject", "Keywords"):
        value = document.get_metadata_value(key)
        if value.strip():
            found[key.lower()] = value
    for key, name in (("CreationDate", "created"), ("ModDate", "modified")):
        if date := iso_date(document.get_metadata_value(key)):
            found[name] = date
    return found


def iso_date(text: str) -> str | None:
    """A PDF date (`D:20240103120000+01'00'`) as ISO 8601, None where it is none."""
    found = _DATE.match(text.strip())
    if not found:
        return None
    year, month, day, hour, minute, second, sign, zone, rest = found.groups()
    date = f"{year}-{month or '01'}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}"
    if sign == "Z" or (sign and zone in {None, "00"} and rest in {None, "00"}):
        return date + "+00:00"
    return f"{date}{sign}{zone}:{rest or '00'}" if sign else date


def embedded_files(document: pdfium.PdfDocument) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files that the document as a whole holds; of a portfolio, its documents."""
    for index in range(document.count_attachments()):
        raw = pdfium_c.FPDFDoc_GetAttachment(document.raw, index)
        if raw:
            yield _content(pdfium.PdfAttachment(raw, document))


def pinned_files(document: pdfium.PdfDocument, page: pdfium.PdfPage) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files that are pinned to a page as annotations."""
    for index in range(pdfium_c.FPDFPage_GetAnnotCount(page.raw)):
        note = pdfium_c.FPDFPage_GetAnnot(page.raw, index)
        if not note:
            continue
        try:
            if pdfium_c.FPDFAnnot_GetSubtype(note) == pdfium_c.FPDF_ANNOT_FILEATTACHMENT:
                raw = pdfium_c.FPDFAnnot_GetFileAttachment(note)
                if raw:
                    yield _content(pdfium.PdfAttachment(raw, document))
        finally:
            pdfium_c.FPDFPage_CloseAnnot(note)


def _content(attachment: pdfium.PdfAttachment) -> tuple[str, bytes]:
    """Name and bytes; none of either where pdfium finds none."""
    try:
        name = attachment.get_name()
    except pdfium.PdfiumError:
        name = ""
    try:
        return name, bytes(attachment.get_data())
    except pdfium.PdfiumError:
        return name, b""
