"""pypdf, the second reader of PDFs: form values, another opinion on a text, files that pdfium cannot open."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PdfReader

_MAX_FIELDS = 2000
_PUSH_BUTTON = 1 << 16


@cache
def read_errors() -> tuple[type[Exception], ...]:
    """What a damaged or odd file makes pypdf raise, its own errors and others."""
    from pypdf.errors import PyPdfError

    return (
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


class SecondReader:
    """Opens a PDF with pypdf when first asked; what it cannot read is None or empty, never an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: PdfReader | None = None
        self._tried = False
        self.problem: str | None = None

    def _open(self) -> PdfReader | None:
        if not self._tried:
            self._tried = True
            # Imported here: it takes longer than a short file does, and most files do not need it.
            from pypdf import PdfReader

            logging.getLogger("pypdf").setLevel(logging.CRITICAL)
            try:
                reader = PdfReader(self._path)
                if reader.is_encrypted and not reader.decrypt(""):
                    self.problem = "encrypted"
                elif len(reader.pages) >= 0:
                    self._reader = reader
            except read_errors() as error:
                self._note(error)
        return self._reader

    def _note(self, error: Exception) -> None:
        self.problem = f"{type(error).__name__}: {error}"

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
        except read_errors():
            return None

    def metadata(self) -> dict[str, Any]:
        """Title, author, subject, keywords, dates (ISO 8601): what there is of them."""
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
        except read_errors() as error:
            self._note(error)
        return found

    def attachments(self) -> Iterator[tuple[str, bytes]]:
        """Names and bytes of the embedded files."""
        reader = self._open()
        if reader is None:
            return
        try:
            for name, versions in reader.attachments.items():
                for content in versions if isinstance(versions, list) else [versions]:
                    yield name, content
        except read_errors() as error:
            self._note(error)

    def form_values(self) -> list[tuple[str, str]]:
        """Names and values of a form's fields that hold something: text, choices, what is ticked."""
        reader = self._open()
        if reader is None:
            return []
        found: list[tuple[str, str]] = []
        try:
            for name, field in (reader.get_fields() or {}).items():
                value = _field_value(field)
                if value and len(found) < _MAX_FIELDS:
                    found.append((str(name), value))
        except read_errors() as error:
            self._note(error)
        return found


def _field_value(field: Any) -> str:
    """What a field holds as text; empty where it is not filled in, or is a button or a signature."""
    kind, value = field.get("/FT"), field.get("/V")
    if value is None or kind not in {"/Tx", "/Ch", "/Btn"}:
        return ""
    if kind == "/Btn":
        state = str(value).removeprefix("/")
        if int(field.get("/Ff", 0) or 0) & _PUSH_BUTTON or state == "Off":
            return ""
        names = _options(field)
        return names.get(state, state)
    values = value if isinstance(value, list) else [value]
    names = _options(field) if kind == "/Ch" else {}
    return ", ".join(names.get(text, text) for one in values if (text := _as_text(one)))


def _options(field: Any) -> dict[str, str]:
    """What is shown for each value of a choice, or for each number of a radio button."""
    shown: dict[str, str] = {}
    for number, entry in enumerate(field.get("/Opt") or ()):
        option = entry.get_object() if hasattr(entry, "get_object") else entry
        if isinstance(option, list) and len(option) == 2:
            shown[_as_text(option[0])] = _as_text(option[1])
        else:
            shown[str(number)] = _as_text(option)
    return shown


def _as_text(value: Any) -> str:
    if hasattr(value, "get_object"):
        value = value.get_object()
    if hasattr(value, "get_data"):
        return str(value.get_data().decode("utf-8", "replace"))
    return str(value).removeprefix("/") if type(value).__name__ == "NameObject" else str(value)
