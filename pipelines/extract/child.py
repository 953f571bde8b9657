"""The parsing process: limits itself, reads one file, writes JSON lines.

Run as `python -m pipelines.extract.child` with the request on its standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from dataclasses import replace
from typing import Any

from pipelines.errors import GristmillError, PermanentError
from pipelines.extract.job import Job
from pipelines.extract.lifeline import die_with_parent
from pipelines.extract.registry import format_of, run_extractor, run_recogniser
from pipelines.extract.rules import ExtractRules
from pipelines.extract.wire import dump_error, dump_page, dump_progress, dump_result, load_request

_NETWORK_EVENTS = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"})


def main() -> int:
    """Serve one request and return the exit status: 0 when a result or an error was written."""
    request = load_request(sys.stdin.read())
    rules = request.job.rules
    die_with_parent(request.parent)
    limit(rules)
    forbid_network()
    # Parsers print; only our lines may reach the pipe.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def send(line: str) -> None:
        pipe.write(line + "\n")
        pipe.flush()

    page = 0

    def progress(number: int, pages: int) -> None:
        nonlocal page
        page = number
        send(dump_progress(number, pages))

    job = replace(request.job, progress=progress)
    try:
        if request.pages is None:
            send(dump_result(run_extractor(job)))
        else:
            for read in run_recogniser(job, request.pages):
                send(dump_page(read))
    except MemoryError:
        send(dump_error(_out_of_memory(rules, page)))
    except GristmillError as error:
        send(dump_error(error))
    except Exception as error:  # noqa: BLE001 - whatever a parser raises is this document's recorded fate
        send(dump_error(_failed(error, job, page)))
    return 0


def limit(rules: ExtractRules) -> None:
    """Limit this process's address space and processor time, where the platform can."""
    if sys.platform == "win32":
        return
    import resource

    seconds = max(1, int(rules.seconds) + 1)
    for kind, wanted in (
        (resource.RLIMIT_AS, rules.memory_mb * 2**20),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # macOS refuses limits of the address space; the wall-clock limit still holds there.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, hard))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def forbid_network() -> None:
    """Refuse every network connection that Python code in this process tries to open; it cannot be undone."""

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event in _NETWORK_EVENTS:
            raise PermissionError(f"a parser tried to use the network ({event})")

    sys.addaudithook(refuse)


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
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, MemoryError):
            return _out_of_memory(job.rules, page)
        chain = chain.__cause__ or chain.__context__
    import traceback

    traceback.print_exception(error)
    where = f" at page {page}" if page else ""
    detail = " ".join(str(error).split())[:200]
    return PermanentError(
        "parser_failed",
        f"the {format_of(job.mime).label} reader could not read it{where}: {type(error).__name__}: {detail}",
        "open the file in its own program and save it again, or print it as PDF",
    )


if __name__ == "__main__":
    sys.exit(main())
