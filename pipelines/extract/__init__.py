"""From a file of any supported format to clean text in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipelines.errors import PermanentError
from pipelines.extract.attachments import Attachments
from pipelines.extract.gate import check_file
from pipelines.extract.job import Job, Progress, no_progress
from pipelines.extract.registry import format_of, run_extractor
from pipelines.extract.rules import ExtractRules
from pipelines.sniff import sniff
from pipelines.types import Extracted, OcrPage

__all__ = ["ExtractRules", "extract", "recognise"]

# The worst text of this size that is known (`<!--` over and over, as Markdown) takes 2 s, one ten times larger 200.
INLINE_BYTES = 32 * 2**10


def extract(
    path: Path,
    *,
    name: str | None = None,
    rules: ExtractRules = ExtractRules(),  # noqa: B008 - frozen
    progress: Progress | None = None,
    ocr: Mapping[int, OcrPage] | None = None,
    attachments: Path | None = None,
) -> Extracted:
    """Read a document: check it, sniff what it is, extract and sanitise its text.

    Text formats of up to `INLINE_BYTES` are read in this process; all else in a process of its own with limits
    of memory, processor time and wall-clock time, so that no file can take the caller down or hold it.

    Args:
        path: the file.
        name: the name it is known by, where `path` is a temporary one.
        rules: limits and OCR settings.
        progress: called with (page begun, pages in all) for formats with pages.
        ocr: pages that `recognise` has read before, by number.
        attachments: an empty folder for the documents found inside this one; None: only their names are kept.

    Raises:
        PermanentError: the file cannot be ingested as it is. Codes: `vanished`, `unreadable`, `not_a_file`,
        `empty_file`,
            `too_large`, `unsupported_format`, `encrypted`, `corrupt`, `bomb`, `too_many_pages`, `no_text`,
            `ocr_unavailable`, `parser_failed`, `parser_crashed`, `extract_timeout`, `out_of_memory`.
        RetryableError: the parsing process was ended from outside (`parser_killed`).
    """
    size = check_file(path, rules.max_bytes)
    with _readable():
        mime = sniff(path, name)
        inside = Attachments(attachments, rules.max_bytes)
        job = Job(path, mime, rules, progress or no_progress, ocr=ocr or {}, attachments=inside)
        if not format_of(mime).isolated and size <= INLINE_BYTES:
            return run_extractor(replace(job, progress=no_progress))
    from pipelines.extract.isolation.isolate import extract_isolated

    return extract_isolated(job)


def recognise(
    path: Path,
    pages: Sequence[int],
    done: Callable[[OcrPage], None],
    *,
    name: str | None = None,
    rules: ExtractRules = ExtractRules(),  # noqa: B008 - frozen
    progress: Progress | None = None,
) -> None:
    """OCR some pages of a PDF or an image, in a process of its own.

    Args:
        pages: their 1-based numbers.
        done: called with each page as soon as it is read.

    Raises:
        PermanentError, RetryableError: as `extract`.
    """
    check_file(path, rules.max_bytes)
    with _readable():
        job = Job(path, sniff(path, name), rules, progress or no_progress)
    from pipelines.extract.isolation.isolate import recognise_isolated

    recognise_isolated(job, pages, done)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise PermanentError("vanished", "the file was removed while it was read", "put it back") from error
    except OSError as error:
        raise PermanentError(
            "unreadable",
            f"the file cannot be read: {error.strerror or error}",
            "check the disk or share it lies on",
        ) from error
