"""Files read in a process of their own, again and again without the pages that end it.

A page that crashes its reader, holds it or eats its memory costs that page, not the document: another process
reads the rest. What OCR has read by then is handed on. All of it happens within the one limit of time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.errors import GristmillError, PermanentError
from pipelines.extract.isolation.process import Ending, run_process
from pipelines.extract.isolation.wire import Request, load_blocks, load_page, load_result
from pipelines.extract.job import Job
from pipelines.types import Block, Extracted, OcrPage

MAX_LEFT_OUT = 5


def extract_isolated(job: Job) -> Extracted:
    """Read a file; up to `MAX_LEFT_OUT` pages that end the reading process are reported as failed.

    `job.progress` is called in this thread; what it raises ends the reading process and is passed on.

    Raises:
        PermanentError: what the parser said, or `extract_timeout`, `out_of_memory`, `parser_crashed`.
        RetryableError: `parser_killed`, where a signal from outside ended the process.
    """
    deadline = time.monotonic() + job.rules.seconds
    ocr: dict[int, OcrPage] = dict(job.ocr)
    skip: dict[int, str] = dict(job.skip)
    faults: dict[int, str] = {}
    first: GristmillError | None = None
    blocks: list[Block] = []
    result: Extracted | None = None

    def take(message: dict[str, Any]) -> None:
        nonlocal result
        if "blocks" in message:
            blocks.extend(load_blocks(message["blocks"]))
        elif "result" in message:
            result = load_result(message["result"], blocks)
        elif "ocr" in message:
            page = load_page(message["ocr"])
            ocr[page.number] = page

    while True:
        blocks.clear()
        attempt = replace(job, ocr=dict(ocr), skip=dict(skip))
        ending = run_process(Request(attempt, None, os.getpid()), deadline, take)
        if ending.error is None:
            assert result is not None
            return result
        if first is not None and ending.error.code == "no_text":
            # It has none since the pages that held it are left out: those are the cause.
            raise first from ending.error
        if ending.page in skip or not _may_go_on(ending, faults):
            raise _told(ending.error, faults)
        first = first or ending.error
        faults[ending.page] = ending.fault
        if ending.begun_before and ending.page not in ocr:
            # Its text layer was read without harm and may be of use.
            ocr[ending.page] = OcrPage(ending.page, problem=ending.fault)
        elif ending.page not in ocr or ending.page in attempt.ocr:
            # Else its OCR was done and what came after it harmed: with that at hand, it may not come to it again.
            skip[ending.page] = ending.fault
        if job.attachments.folder is not None:
            _empty(job.attachments.folder)


def recognise_isolated(job: Job, pages: Sequence[int], done: Callable[[OcrPage], None]) -> None:
    """OCR some pages of a file; up to `MAX_LEFT_OUT` that end the reading process have that as their `problem`.

    Args:
        done: called in this thread with each page as soon as it is read, so that a failure loses none of them.

    Raises:
        PermanentError, RetryableError: as `extract_isolated`.
    """
    deadline = time.monotonic() + job.rules.seconds
    left = list(pages)
    faults: dict[int, str] = {}

    def take(message: dict[str, Any]) -> None:
        if "ocr" in message:
            page = load_page(message["ocr"])
            left.remove(page.number)
            done(page)

    while left:
        before = len(left)
        ending = run_process(Request(job, tuple(left), os.getpid()), deadline, take)
        if ending.error is None or not left:
            return
        if ending.page in left and _may_go_on(ending, faults):
            faults[ending.page] = ending.fault
            left.remove(ending.page)
            done(OcrPage(ending.page, problem=ending.fault))
        elif not ending.fault or len(left) == before:
            raise _told(ending.error, faults)


def _may_go_on(ending: Ending, faults: Mapping[int, str]) -> bool:
    return bool(ending.fault) and (ending.page in faults or len(faults) < MAX_LEFT_OUT)


def _told(error: GristmillError, faults: Mapping[int, str]) -> GristmillError:
    """The error, with the pages that had been left out before it."""
    if not faults or not isinstance(error, PermanentError):
        return error
    pages = ", ".join(f"{number} ({fault})" for number, fault in sorted(faults.items()))
    told = PermanentError(error.code, f"{error.cause}, after it was tried without page {pages}", error.remedy)
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


def _empty(folder: Path) -> None:
    """Remove what an attempt has put there: the next one writes it again."""
    for path in folder.iterdir():
        path.unlink()
