"""What tells one state of a page from another: its bytes, and for HTML the text that is read from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import PermanentError
from pipelines.extract import extract
from pipelines.sniff import HTML, sniff
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Of the file that a page came as.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
        text: of the title and text that extraction finds; empty for other formats, where it finds none, and where it
            was not asked.
    """

    digest: str
    text: str
    is_html: bool


def fingerprint(
    path: Path, name: str, settings: Settings, *, digest: str = "", text: str = "", read: bool = True
) -> Fingerprint:
    """The fingerprint of a file.

    Pages that change with every request (a nonce, an advertisement, the time of day) are told from those that have
    something new to say only by their text.

    Args:
        name: as the file is called.
        digest, text: of the last time; the same bytes are not read again.
        read: whether the text of other bytes is wanted; it costs as much as an ingest up to there.

    Raises:
        RetryableError: extraction was ended from outside.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    is_html = sniff(path, name) == HTML
    if found != digest:
        text = _text(path, name, settings) if is_html and read else ""
    return Fingerprint(found, text, is_html)


def _text(path: Path, name: str, settings: Settings) -> str:
    from worker.ingest import extract_rules  # and with it the embedders

    try:
        read = extract(path, name=name, rules=extract_rules(settings))
    except PermanentError:  # told to the operator when the document is ingested
        return ""
    return hashlib.sha256(f"{read.title}\0{read.text}".encode("utf-8", "surrogatepass")).hexdigest()
