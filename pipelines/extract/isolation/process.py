"""One run of a parsing process: started, followed line by line, and ended with everything it started.

C code cannot be interrupted from Python, a hostile file can ask for any amount of memory, and a crash takes
its process with it. So parsers run in a child with its own session: ending it ends its process group,
Tesseract included.
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pipelines
from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract.isolation.wire import NO_MEMORY, Request, dump_request, load_error
from pipelines.extract.rules import ExtractRules

_PASSED_ON = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TESSDATA_PREFIX", "LD_LIBRARY_PATH", "SYSTEMROOT"}
)
_QUIET = {
    "OMP_THREAD_LIMIT": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
    "SCARF_NO_ANALYTICS": "1",
    "UNSTRUCTURED_DISABLE_NOTICE": "1",
    "PYTHONUTF8": "1",
}
_OUTSIDE_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
_GIVEN_UP = ("SIGABRT", "SIGTRAP", "SIGILL")  # what libraries in C end themselves with, mostly for want of memory
_PAGE_FAULTS = {"out_of_memory": "out-of-memory", "parser_failed": "crashed", "parser_crashed": "crashed"}
_NEARLY = 0.9
_LONGEST_NOTE = 2000
_OOM_KILLS = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Attributes:
        error: None where the process did its work.
        page: the page it was at; 0 where it was at none in particular.
        begun_before: whether that page had been begun before in this run, so its text has been read and this
            was its OCR.
        fault: what the page did to the process (`crashed`, `timeout`, `out-of-memory`); empty where it is not
            to blame.
    """

    error: GristmillError | None
    page: int = 0
    begun_before: bool = False
    fault: str = ""


class _Watch:
    """Ends a process at its last second, or when it stays at one page for too long."""

    def __init__(self, end: Callable[[], None], deadline: float, page_seconds: float) -> None:
        self._end = end
        self._deadline = deadline
        self._page_seconds = page_seconds
        self._page_deadline = float("inf")
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="parser-watch", daemon=True)
        self._over = False
        self.ended: str | None = None  # by which limit: `file` or `page`

    def start(self) -> None:
        self._thread.start()

    def page(self, begun: bool) -> None:
        """Count from now for a page, or for none: between pages, or while the reader of lines is busy elsewhere."""
        with self._changed:
            # The thread is not woken: it looks again when the page before would have been too late, never later.
            self._page_deadline = time.monotonic() + self._page_seconds if begun else float("inf")

    def stop(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._over:
                now = time.monotonic()
                if now >= min(self._deadline, self._page_deadline):
                    self.ended = "file" if now >= self._deadline else "page"
                    self._end()
                    return
                # Also where no page is begun: one may be while this thread sleeps.
                self._changed.wait(min(self._deadline, self._page_deadline, now + self._page_seconds) - now)


def run_process(request: Request, deadline: float, take: Callable[[dict[str, Any]], None]) -> Ending:
    """Have one parsing process serve a request.

    Args:
        deadline: the `time.monotonic` at which it is ended at the latest.
        take: called in this thread with each of its messages but progress and errors. What it or the job's
            `progress` raises ends the process and is passed on.
    """
    rules = request.job.rules
    kills = _oom_kills()
    with (
        tempfile.TemporaryFile() as stderr,
        tempfile.TemporaryFile() as stdin,
        # Whatever the parsers leave behind when they are killed goes with it.
        tempfile.TemporaryDirectory(prefix="gristmill-", ignore_cleanup_errors=True) as scratch,
    ):
        stdin.write(dump_request(request).encode())
        stdin.seek(0)
        child = subprocess.Popen(
            # -P: nothing in the current directory may pose as a module.
            [sys.executable, "-P", "-m", "pipelines.extract.isolation.child"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=scratch,
            env=environment(Path(scratch)),
            start_new_session=True,
        )
        watch = _Watch(lambda: _kill(child), deadline, rules.longest_page_seconds)
        page = pages = 0
        begun: set[int] = set()
        begun_before = finished = False
        error: GristmillError | None = None
        try:
            watch.start()
            assert child.stdout is not None
            for line in child.stdout:
                message = _parse(line)
                watch.page(begun=False)
                if "page" in message:
                    page, pages = message["page"], message["pages"]
                    begun_before = page in begun
                    begun.add(page)
                    if page:
                        request.job.progress(page, pages)
                elif "error" in message:
                    error = load_error(message["error"])
                elif "end" in message:
                    finished = True
                else:
                    take(message)
                watch.page(begun=page > 0)
        finally:
            watch.stop()
            _kill(child)
            peak = _reap(child)
            if child.stdout is not None:
                child.stdout.close()
        if error is None and not finished:
            small = peak < _NEARLY * rules.memory_mb * 2**20
            death = _Death(child.returncode, watch.ended, _oom_kills() > kills, small)
            error = death.error(page, pages, rules)
        if error is None:
            return Ending(None)
        if note := _tail(stderr):
            error.add_note(f"the parser's last words: {note}")
        fault = "timeout" if watch.ended == "page" else _PAGE_FAULTS.get(error.code, "")
        return Ending(error, page, begun_before, fault if page else "")


def environment(scratch: Path) -> dict[str, str]:
    """What the process may know: no secret of ours reaches one that reads strangers' files.

    Args:
        scratch: the folder for its temporary files.
    """
    root = str(Path(pipelines.__file__).resolve().parent.parent)
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    return passed | _QUIET | {"PYTHONPATH": root} | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child's whole process group; harmless where it is gone."""
    if hasattr(os, "killpg"):
        # The group may outlive its leader (Tesseract does), so the leader's end is no reason to stop here.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    elif child.poll() is None:
        child.kill()


def _reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child's end; its largest resident size in bytes, 0 where that is not known."""
    if not hasattr(os, "wait4") or sys.platform == "win32":
        child.wait()
        return 0
    import resource

    try:
        _, status, usage = os.wait4(child.pid, 0)
    except ChildProcessError:
        # Whoever started us ignores SIGCHLD, and `Popen` knows what to make of that.
        child.wait()
        return 0
    child.returncode = os.waitstatus_to_exitcode(status)
    # Linux hands the largest size of the parent down to its child, so only what is above it is the child's own.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit if usage.ru_maxrss > own else 0


def _oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started; 0 where it does not say."""
    try:
        found = [line for line in _OOM_KILLS.read_text().splitlines() if line.startswith("oom_kill ")]
    except OSError:
        return 0
    return int(found[0].split()[1]) if found else 0


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        # Half a line: the child was ended while it wrote.
        return {}
    return message if isinstance(message, dict) else {}


@dataclass(frozen=True, slots=True)
class _Death:
    """The end of a process that left no word.

    Attributes:
        code: as `Popen.returncode`.
        limit: the limit we ended it for, if we did.
        oom: whether the kernel ended some process for want of memory meanwhile.
        small: whether it was known to be far from its own limit of memory, or its size is not known.
    """

    code: int
    limit: str | None
    oom: bool
    small: bool

    def error(self, page: int, pages: int, rules: ExtractRules) -> GristmillError:
        where = f" on page {page} of {pages}" if page else ""
        number = -self.code if self.code < 0 else 0
        name = signal.Signals(number).name if number in set(signal.Signals) else f"status {self.code}"
        if self.limit == "page":
            return PermanentError(
                "extract_timeout",
                f"reading page {page} of {pages} took longer than {rules.longest_page_seconds:g} seconds",
                "raise GRISTMILL_EXTRACT_PAGE_SECONDS, or print that page again as PDF",
            )
        if self.limit == "file" or name == "SIGXCPU":
            return PermanentError(
                "extract_timeout",
                f"reading the file took longer than {rules.seconds:g} seconds{where}",
                "raise GRISTMILL_EXTRACT_SECONDS or split the file",
            )
        if self.code == NO_MEMORY:
            return PermanentError(
                "out_of_memory",
                f"reading the file needs more than {rules.memory_mb} MiB of memory{where}",
                "raise GRISTMILL_EXTRACT_MEMORY_MB or split the file",
            )
        if name == "SIGKILL" and self.oom and not self.small:
            # Its own limit was next, and would have stopped it at this page every time.
            return PermanentError(
                "out_of_memory",
                f"the machine ran out of memory when reading the file needed nearly {rules.memory_mb} MiB{where}",
                "split the file, or lower GRISTMILL_INGEST_CONCURRENCY",
            )
        if name in _OUTSIDE_SIGNALS:
            by = (
                "by the kernel, which was out of memory" if name == "SIGKILL" and self.oom else f"from outside ({name})"
            )
            return RetryableError(
                "parser_killed",
                f"the process that read the file was ended {by}{where}",
                "if this repeats, the machine is out of memory: lower GRISTMILL_INGEST_CONCURRENCY",
            )
        or_else = ", or raise GRISTMILL_EXTRACT_MEMORY_MB" if name in _GIVEN_UP else ""
        return PermanentError(
            "parser_crashed",
            f"the process that read the file crashed ({name}){where}",
            f"open the file in its own program and save or print it again as PDF{or_else}",
        )


def _tail(stderr: IO[bytes]) -> str:
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _LONGEST_NOTE))
    return stderr.read().decode(errors="replace").strip()
