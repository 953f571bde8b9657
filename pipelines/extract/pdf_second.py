"""pypdf, the second reader of PDFs: metadata, form values, attachments, another opinion on a text."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pypdf import PdfReader
from pypdf.errors import PyPdfError

# What a damaged or odd file makes pypdf raise beyond its own errors.
READ_ERRORS = (
    PyPdfError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    OSError,
    RecursionError,
    NotImplementedError,
)
_MAX_FIELDS = 2000


class SecondReader:
    """Opens a PDF with pypdf when first asked; what it cannot read is None or empty, never an error."""

    def __init__(self, path: Path) -> None:
        logging.getLogger("pypdf").setLevel(logging.CRITICAL)
        self._path = path
        self._reader: PdfReader | None = None
        self._tried = False
        self.problem: str | None = None

    def _open(self) -> PdfReader | None:
        if not self._tried:
            self._tried = True
            try:
                reader = PdfReader(self._path)
                if reader.is_encrypted and not reader.decrypt(""):
                    self.problem = "encrypted"
                elif len(reader.pages) >= 0:
                    self._reader = reader
            except READ_ERRORS as error:
                self.problem = f"{type(error).__name__}: {error}"
        return self._reader

    @property
    def pages(self) -> int | None:
        """Number of pages, None where pypdf cannot open the file."""
        reader = self._open()
        return len(reader.pages) if reader else None

    def page_text(self, number: int) -> str | None:
        """Text of the 1-based page, None where pypdf cannot read it."""
        reader = self._open()
        if reader is None:
            return None
        try:
            return reader.pages[number - 1].extract_text()
        except READ_ERRORS:
            return None

    def metadata(self) -> dict[str, Any]:
        """Title, author, subject, keywords, dates (ISO 8601), names of attachments: what there is of them."""
        reader = self._open()
        if reader is None:
            return {}
        found: dict[str, Any] = {}
        try:
            info = reader.metadata
            for key in ("title", "author", "subject", "keywords") if info else ():
                value = getattr(info, key)
                if isinstance(value, str) and value.strip():
                    found[key] = value
            for key, name in (("creation_date", "created"), ("modification_date", "modified")) if info else ():
                date = getattr(info, key)
                if date is not None:
                    found[name] = date.isoformat()
        except READ_ERRORS as error:
            self.problem = f"{type(error).__name__}: {error}"
        try:
            names = list(reader.attachments)
            if names:
                found["attachments"] = names
        except READ_ERRORS as error:
            self.problem = f"{type(error).__name__}: {error}"
        return found

    def form_values(self) -> list[tuple[str, str]]:
        """Names and values of the filled text fields of a form."""
        reader = self._open()
        if reader is None:
            return []
        try:
            fields = reader.get_form_text_fields() or {}
        except READ_ERRORS as error:
            self.problem = f"{type(error).__name__}: {error}"
            return []
        return [(str(name), str(value)) for name, value in list(fields.items())[:_MAX_FIELDS] if value]
