"""The waiting side of a parsing process: start it, follow it, and end it with everything it started.

C code cannot be interrupted from Python, a hostile file can ask for any amount of memory, and a crash takes
its process with it. So every heavy parser runs in a child with its own session; ending the child ends its
process group, Tesseract included.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pipelines
from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract.job import Job
from pipelines.extract.rules import ExtractRules
from pipelines.extract.wire import Request, dump_request, load_error, load_page, load_result
from pipelines.types import Extracted, OcrPage

_PASSED_ON = frozenset(
    {
        "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "TESSDATA_PREFIX",
        "LD_LIBRARY_PATH", "SYSTEMROOT",
    }
)  # fmt: skip
_QUIET = {
    "OMP_THREAD_LIMIT": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
    "SCARF_NO_ANALYTICS": "1",
    "UNSTRUCTURED_DISABLE_NOTICE": "1",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_OUTSIDE_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
_LONGEST_NOTE = 2000


def extract_isolated(job: Job) -> Extracted:
    """Read a file in a child process.

    `job.progress` is called in this thread; what it raises ends the child and is passed on.

    Raises:
        PermanentError: what the parser said, or `extract_timeout`, `out_of_memory`, `parser_crashed`.
        RetryableError: `parser_killed`, where a signal from outside ended the child.
    """
    result: Extracted | None = None

    def take(message: dict[str, Any]) -> None:
        nonlocal result
        if "result" in message:
            result = load_result(message["result"])

    error = _serve(Request(job, None, os.getpid()), take)
    if result is None:
        raise error or _ended_without_a_word(0, False, 0, 0, job.rules)
    return result


def recognise_isolated(job: Job, pages: Sequence[int], done: Callable[[OcrPage], None]) -> None:
    """OCR some pages of a file in a child process.

    Args:
        done: called in this thread with each page as soon as it is read, so that a failure loses none of them.

    Raises:
        PermanentError, RetryableError: as `extract_isolated`.
    """

    def take(message: dict[str, Any]) -> None:
        if "ocr" in message:
            done(load_page(message["ocr"]))

    if error := _serve(Request(job, tuple(pages), os.getpid()), take):
        raise error


def _serve(request: Request, take: Callable[[dict[str, Any]], None]) -> GristmillError | None:
    """Run one child and hand its messages to `take`; the error it ended with, None where it did its work."""
    rules = request.job.rules
    with tempfile.TemporaryFile() as stderr, tempfile.TemporaryFile() as stdin:
        stdin.write(dump_request(request).encode())
        stdin.seek(0)
        child = subprocess.Popen(
            # -P: nothing in the current directory may pose as a module.
            [sys.executable, "-P", "-m", "pipelines.extract.child"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_environment(),
            start_new_session=True,
        )
        timed_out = threading.Event()

        def end_late() -> None:
            timed_out.set()
            _kill(child)

        timer = threading.Timer(rules.seconds, end_late)
        timer.daemon = True
        page = pages = 0
        error: GristmillError | None = None
        try:
            timer.start()
            assert child.stdout is not None
            for line in child.stdout:
                message = _parse(line)
                if "page" in message:
                    page, pages = message["page"], message["pages"]
                    request.job.progress(page, pages)
                elif "error" in message:
                    error = load_error(message["error"])
                else:
                    take(message)
            child.wait()
        finally:
            timer.cancel()
            _kill(child)
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        if error is None and child.returncode != 0:
            error = _ended_without_a_word(child.returncode, timed_out.is_set(), page, pages, rules)
        note = _tail(stderr) if error else ""
        if error and note:
            error.add_note(f"the parser's last words: {note}")
        return error


def _environment() -> dict[str, str]:
    """What the child may know: no secret of ours reaches a process that reads strangers' files."""
    root = str(Path(pipelines.__file__).resolve().parent.parent)
    return {key: os.environ[key] for key in _PASSED_ON if key in os.environ} | _QUIET | {"PYTHONPATH": root}


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child's whole process group; harmless where it is gone."""
    if hasattr(os, "killpg"):
        # The group may outlive its leader (Tesseract does), so the leader's end is no reason to stop here.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        # Half a line: the child was ended while it wrote.
        return {}
    return message if isinstance(message, dict) else {}


def _ended_without_a_word(
    code: int, timed_out: bool, page: int, pages: int, rules: ExtractRules
) -> PermanentError | RetryableError:
    where = f" on page {page} of {pages}" if page else ""
    number = -code if code < 0 else 0
    name = signal.Signals(number).name if number in set(signal.Signals) else f"status {code}"
    if timed_out or name == "SIGXCPU":
        return PermanentError(
            "extract_timeout",
            f"reading the file took longer than {rules.seconds:g} seconds{where}",
            "raise GRISTMILL_EXTRACT_SECONDS or split the file",
        )
    if name in _OUTSIDE_SIGNALS:
        return RetryableError(
            "parser_killed",
            f"the process that read the file was ended from outside ({name}){where}",
            "if this repeats, the machine is out of memory: lower GRISTMILL_INGEST_CONCURRENCY",
        )
    return PermanentError(
        "parser_crashed",
        f"the process that read the file crashed ({name}){where}",
        "open the file in its own program and save or print it again as PDF",
    )


def _tail(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _LONGEST_NOTE))
    return stderr.read().decode(errors="replace").strip()
