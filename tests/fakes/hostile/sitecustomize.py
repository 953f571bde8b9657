"""Loaded by a parsing process that has this folder on its PYTHONPATH: a PDF reader that does as its file says.

The "PDF" is `%PDF-` and a JSON list with an object a page: `text` is its text layer, `do` happens when its text is
read, `ocr` is what OCR reads in it, `ocr_do` happens when it does, `ocr_after` once it has, and `last` (of any
page) when all are read.
Each reading of a page leaves a line in `<name>.log`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.extract.job import Job
    from pipelines.types import Extracted, OcrPage

_RAW_CONNECT = (
    "import socket\ntry: socket.create_connection(('127.0.0.1', {port}), 5)\nexcept OSError: print('refused')\n"
    "else: print('connected')"
)


def act(what: str) -> str:
    """Do one harmful thing; the text it yields where it does not end the process."""
    verb, _, detail = what.partition(" ")
    match verb:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "vanish":
            os._exit(0)
        case "hang":
            time.sleep(600)
        case "spin":
            while True:
                pass
        case "eat":
            held = [bytearray(2**24) for _ in range(128)]
            return f"{sum(map(len, held)) // 2**20} MiB were to be had"
        case "raise":
            raise ValueError(detail)
        case "litter":
            Path(tempfile.mkdtemp(), "left").write_text("behind")
            Path("left").write_text("in the current directory")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "spawn":
            return subprocess.run(
                [sys.executable, "-c", _RAW_CONNECT.format(port=detail)], capture_output=True, text=True, check=True
            ).stdout
        case "connect":
            try:
                socket.create_connection(("127.0.0.1", int(detail)), 5)
            except OSError as error:
                return type(error).__name__
        case "environment":
            return " ".join(os.environ.values())
        case "say":
            return "x" * int(detail)
        case "write":
            Path(detail).write_text("attachment")
    return ""


def _pages(job: Job) -> list[dict[str, Any]]:
    pages: list[dict[str, Any]] = json.loads(job.path.read_bytes()[5:])
    return pages


def _note(job: Job, what: str) -> None:
    with job.path.with_suffix(".log").open("a") as log:
        log.write(what + "\n")


def _read_ocr(job: Job, number: int, page: dict[str, Any]) -> OcrPage:
    from pipelines.types import OcrPage

    job.progress(number, len(_pages(job)))
    _note(job, f"ocr {number}")
    act(page.get("ocr_do", ""))
    return OcrPage(number, (page["ocr"],), 90.0)


def extract_pdf(job: Job) -> Extracted:
    from pipelines.types import Block, Extracted, PageReport

    pages = _pages(job)
    blocks: dict[int, Block] = {}
    reports: dict[int, PageReport] = {}
    for number, page in enumerate(pages, 1):
        job.progress(number, len(pages))
        if number in job.skip:
            reports[number] = PageReport(number, "failed", job.skip[number])
            continue
        _note(job, f"text {number}")
        text = page.get("text", "") + act(page.get("do", ""))
        blocks[number] = Block("paragraph", text, page=number)
        reports[number] = PageReport(number, "text", "text-layer")
    for number, page in enumerate(pages, 1):
        if "ocr" not in page or number in job.skip:
            continue
        found = job.ocr.get(number)
        if found is None:
            found = _read_ocr(job, number, page)
            job.recognised(found)
            act(page.get("ocr_after", ""))
        if found.problem:
            reports[number] = PageReport(number, "failed", found.problem)
        else:
            blocks[number] = Block("paragraph", found.text, page=number)
            reports[number] = PageReport(number, "ocr", "no-text", found.confidence)
    job.progress(0, len(pages))
    for page in pages:
        act(page.get("last", ""))
    return Extracted(job.mime, None, tuple(blocks.values()), tuple(reports[number] for number in sorted(reports)))


def recognise_pdf(job: Job, pages: Sequence[int]) -> Iterator[OcrPage]:
    for number in pages:
        page = _pages(job)[number - 1]
        yield _read_ocr(job, number, page)
        act(page.get("ocr_after", ""))


_module = ModuleType("pipelines.extract.pdf")
vars(_module).update(extract_pdf=extract_pdf, recognise_pdf=recognise_pdf)
sys.modules["pipelines.extract.pdf"] = _module
