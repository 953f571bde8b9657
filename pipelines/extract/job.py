"""One file to read, with everything its reader needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.extract.attachments import Attachments
from pipelines.extract.rules import ExtractRules
from pipelines.types import OcrPage

Progress = Callable[[int, int], None]
"""Called with (page begun, pages in all), both 1-based, while a document with pages is read.

An extractor also calls it with page 0 when it turns from the pages to what is left of the file.
"""


def no_progress(page: int, pages: int) -> None:
    """The progress callback of a caller that does not want to know."""


def no_recognised(page: OcrPage) -> None:
    """The callback of a caller that waits for the whole document."""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to read.

    Attributes:
        mime: its media type, as sniffed.
        progress: told of each page that is begun.
        recognised: given each page that OCR has read on the way to a whole document, lest it be lost if that fails.
        ocr: what OCR made of pages at an earlier time, by 1-based number: it is not run for them again.
        skip: pages that are not to be touched, with the reason: reading them ended an earlier attempt.
        attachments: takes the documents that are found inside this one.
    """

    path: Path
    mime: str
    rules: ExtractRules = ExtractRules()  # noqa: RUF009 - frozen
    progress: Progress = no_progress
    recognised: Callable[[OcrPage], None] = no_recognised
    ocr: Mapping[int, OcrPage] = field(default_factory=dict)
    skip: Mapping[int, str] = field(default_factory=dict)
    attachments: Attachments = field(default_factory=Attachments)
