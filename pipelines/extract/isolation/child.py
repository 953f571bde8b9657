"""The parsing process: limits itself, reads one file, writes JSON lines.

Run as `python -m pipelines.extract.isolation.child` with the request on its standard input.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace

from pipelines.errors import GristmillError, PermanentError
from pipelines.extract.archive import chain_of, entity_bomb
from pipelines.extract.isolation.lifeline import die_with_parent
from pipelines.extract.isolation.sandbox import forbid_network, leave_network, limit, near_its_memory
from pipelines.extract.isolation.wire import (
    NO_MEMORY,
    dump_end,
    dump_error,
    dump_page,
    dump_progress,
    dump_result,
    load_request,
)
from pipelines.extract.job import Job
from pipelines.extract.registry import format_of, run_extractor, run_recogniser
from pipelines.extract.rules import ExtractRules
from pipelines.types import Extracted, OcrPage


def main() -> int:
    """Serve one request and return the exit status: 0 when a result or an error was written."""
    request = load_request(sys.stdin.read())
    rules = request.job.rules
    # First: a new user namespace makes the kernel forget the signal of the parent's death.
    leave_network()
    die_with_parent(request.parent)
    limit(rules)
    attempts = forbid_network()
    # Much is made here that lives until the end, and would be looked through every 700 objects.
    gc.set_threshold(20_000)
    # Parsers print; only our lines may reach the pipe. They may hold the lone surrogates of a file name.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogatepass", closefd=False)
    os.dup2(2, 1)
    # Where a crash was becomes the note of its error.
    faulthandler.enable(2)
    warnings.simplefilter("ignore")

    def send(line: str) -> None:
        pipe.write(line + "\n")
        pipe.flush()

    page = 0

    def progress(number: int, pages: int) -> None:
        nonlocal page
        page = number
        send(dump_progress(number, pages))

    def recognised(read: OcrPage) -> None:
        send(dump_page(read))

    job = replace(request.job, progress=progress, recognised=recognised)
    try:
        if request.pages is None:
            found = run_extractor(job)
            _check_size(found, rules)
            for line in dump_result(_with_attempts(found, attempts)):
                send(line)
        else:
            for read in run_recogniser(job, request.pages):
                recognised(read)
        send(dump_end())
    except MemoryError:
        send(dump_error(_out_of_memory(rules, page)))
    except GristmillError as error:
        send(dump_error(_told(error, job)))
    except Exception as error:  # noqa: BLE001 - whatever a parser raises is this document's recorded fate
        send(dump_error(_failed(error, job, page)))
    return 0


def _with_attempts(found: Extracted, attempts: Sequence[str]) -> Extracted:
    """The document, with a warning where a parser tried to use the network: its text is good all the same."""
    if not attempts:
        return found
    warning = f"a parser tried to use the network and was refused ({attempts[0]})"
    return replace(found, metadata={**found.metadata, "warnings": [*found.metadata.get("warnings", ()), warning]})


def _check_size(found: Extracted, rules: ExtractRules) -> None:
    size = sum(len(block.text) for block in found.blocks)
    if size > rules.max_bytes:
        raise PermanentError(
            "too_large",
            f"the file holds {size:,} characters of text, more than the {rules.max_bytes:,} allowed",
            "raise GRISTMILL_MAX_BYTES or split the file",
        )


def _out_of_memory(rules: ExtractRules, page: int) -> PermanentError:
    where = f" on page {page}" if page else ""
    return PermanentError(
        "out_of_memory",
        f"reading the file needs more than {rules.memory_mb} MiB of memory{where}",
        "raise GRISTMILL_EXTRACT_MEMORY_MB or split the file",
    )


def _failed(error: Exception, job: Job, page: int) -> PermanentError:
    if not job.path.exists():
        return PermanentError("vanished", "the file was removed while it was read", "put it back")
    kinds = set(map(type, chain_of(error)))
    if MemoryError in kinds:
        return _out_of_memory(job.rules, page)
    traceback.print_exception(error)
    if bomb := entity_bomb(error):
        return bomb
    if RecursionError not in kinds and near_its_memory(job.rules):
        return _out_of_memory(job.rules, page)
    where = f" at page {page}" if page else ""
    detail = f"{type(error).__name__}: {' '.join(_without_paths(str(error), job).split())[:200]}"
    if RecursionError in kinds:
        detail = "its parts lie too deep in each other"
    return PermanentError(
        "parser_failed",
        f"the {format_of(job.mime).label} reader could not read it{where}: {detail}",
        "open the file in its own program and save it again, or print it as PDF",
    )


def _told(error: GristmillError, job: Job) -> GristmillError:
    """The error as its readers may have it."""
    error.cause = _without_paths(error.cause, job)
    return error


def _without_paths(text: str, job: Job) -> str:
    """What a parser said, without this machine's names for the file and for copies of it: they help nobody."""
    path = str(job.path)
    for own in (path, repr(path)[1:-1]):
        text = text.replace(own, "the file")
    for folder in filter(None, (job.attachments.folder, tempfile.gettempdir())):
        text = re.sub(re.escape(f"{folder}{os.sep}") + r"[^\s'\"]*", "a temporary file", text)
    return text


if __name__ == "__main__":
    status = NO_MEMORY
    try:
        status = main()
    except (MemoryError, SystemError):
        pass  # the second is how an interpreter without memory loses the first
    except BaseException:  # noqa: BLE001 - it is printed, and the process ends
        traceback.print_exc()
        status = 1
    finally:
        # What Python does at its end is of no use here and may hang where there is no memory. It would also come after
        # the pipe is closed, when whoever listens takes us for gone and kills us.
        os._exit(status)
