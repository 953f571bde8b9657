"""What a page does to the process that reads it costs that page, not the document."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract import INLINE_BYTES, ExtractRules, extract, recognise
from pipelines.extract.isolation import process
from pipelines.extract.isolation.isolate import MAX_LEFT_OUT
from pipelines.types import OcrPage

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT / "tests" / "fakes" / "hostile"
# A machine that is slow, or stands still for a while, must not make a good page a harmful one, nor a page that eats
# memory one that takes too long.
RULES = ExtractRules(seconds=300, memory_mb=512, page_seconds=30, ocr_page_seconds=15)
QUICK = replace(RULES, page_seconds=2, ocr_page_seconds=1)
"""For pages that would take for ever."""

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a file whose pages do as they say; see `tests/fakes/hostile`."""
    usual = process.environment

    def environment(scratch: Path) -> dict[str, str]:
        found = usual(scratch)
        return found | {"PYTHONPATH": os.pathsep.join([str(HOSTILE), found["PYTHONPATH"]])}

    monkeypatch.setattr(process, "environment", environment)

    def make(*pages: dict[str, str]) -> Path:
        path = tmp_path / "a.pdf"
        path.write_text("%PDF-" + json.dumps(pages))
        return path

    return make


def _log(path: Path) -> list[str]:
    return path.with_suffix(".log").read_text().split("\n")[:-1]


def _rules(harm: str) -> ExtractRules:
    return QUICK if harm in {"hang", "spin"} else RULES


def _fails(path: Path, rules: ExtractRules = RULES, **arguments: Any) -> GristmillError:
    with pytest.raises(GristmillError) as caught:
        extract(path, rules=rules, **arguments)
    return caught.value


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("crash", "crashed"),
        ("vanish", "crashed"),
        ("raise an odd error", "crashed"),
        ("hang", "timeout"),
        ("spin", "timeout"),
        ("eat", "out-of-memory"),
    ],
)
def test_a_harmful_page_costs_itself(make: Make, harm: str, reason: str) -> None:
    path = make({"text": "one"}, {"text": "two", "do": harm}, {"text": "three"})
    found = extract(path, rules=_rules(harm))
    assert [block.text for block in found.blocks] == ["one", "three"]
    assert [(page.number, page.decision, page.reason) for page in found.pages] == [
        (1, "text", "text-layer"),
        (2, "failed", reason),
        (3, "text", "text-layer"),
    ]


@pytest.mark.parametrize(("harm", "reason"), [("crash", "crashed"), ("hang", "timeout"), ("eat", "out-of-memory")])
def test_ocr_that_ends_the_process_costs_no_text_and_no_ocr(make: Make, harm: str, reason: str) -> None:
    path = make(
        {"ocr": "first scan"}, {"text": "a layer", "ocr": "never", "ocr_do": harm}, {"ocr": "third scan"}, {"text": "x"}
    )
    found = extract(path, rules=_rules(harm))
    assert [block.text for block in found.blocks] == ["first scan", "a layer", "third scan", "x"]
    assert [(page.decision, page.reason) for page in found.pages] == [
        ("ocr", "no-text"),
        ("failed", reason),
        ("ocr", "no-text"),
        ("text", "text-layer"),
    ]
    assert [line for line in _log(path) if line.startswith("ocr")] == ["ocr 1", "ocr 2", "ocr 3"]


def test_harm_once_a_page_is_ocred_costs_nothing(make: Make) -> None:
    path = make({"ocr": "first scan", "ocr_after": "crash"}, {"ocr": "second scan"})
    found = extract(path, rules=RULES)
    assert [page.decision for page in found.pages] == ["ocr", "ocr"]
    path.with_suffix(".log").unlink()
    done: list[OcrPage] = []
    recognise(path, [1, 2], done.append, rules=RULES)
    assert [(page.number, page.text, page.problem) for page in done] == [
        (1, "first scan", None),
        (2, "second scan", None),
    ]
    assert _log(path) == ["ocr 1", "ocr 2"]


def test_harm_by_text_and_by_ocr_in_one_document(make: Make) -> None:
    path = make({"text": "a layer", "ocr": "x", "ocr_do": "crash"}, {"text": "b", "do": "eat"}, {"text": "c"})
    found = extract(path, rules=RULES)
    assert [page.reason for page in found.pages] == ["crashed", "out-of-memory", "text-layer"]
    assert found.text == "a layer\n\nc"


def test_more_harmful_pages_than_are_left_out_fail_the_document_by_name(make: Make) -> None:
    path = make(*[{"text": "good"}, *[{"do": "crash"}] * (MAX_LEFT_OUT + 1)])
    error = _fails(path)
    assert (type(error), error.code) == (PermanentError, "parser_crashed")
    left_out = ", ".join(f"{number} (crashed)" for number in range(2, MAX_LEFT_OUT + 2))
    assert error.cause == (
        f"the process that read the file crashed (SIGSEGV) on page 7 of 7, after it was tried without page {left_out}"
    )


@pytest.mark.parametrize(
    ("harm", "code"), [("crash", "parser_crashed"), ("hang", "extract_timeout"), ("eat", "out_of_memory")]
)
def test_where_no_other_page_has_text_the_harm_is_the_error(make: Make, harm: str, code: str) -> None:
    error = _fails(make({"do": harm}, {"text": ""}), _rules(harm))
    assert error.code == code
    assert "page 1" in error.cause
    assert error.remedy
    assert isinstance(error.__cause__, PermanentError)
    assert error.__cause__.code == "no_text"


def test_the_limit_of_the_document_holds_for_all_attempts_and_names_the_page(make: Make) -> None:
    # Enough for two pages that hang, however long processes take to start here, and not for six.
    seconds = 7 + round(3 * min(_seconds(lambda: extract(make({"text": "a"}), rules=RULES)) for _ in range(2)))
    path = make({"text": "a"}, *[{"do": "hang"}] * 6)
    start = time.monotonic()
    error = _fails(path, replace(QUICK, seconds=seconds))
    assert time.monotonic() - start < seconds + 15
    assert error.code == "extract_timeout"
    said = rf"took longer than {seconds} seconds on page [3-7] of 7, after it was tried without page 2 \(timeout"
    assert re.match(f"reading the file {said}", error.cause)


def _seconds(do: Callable[[], object]) -> float:
    start = time.monotonic()
    do()
    return time.monotonic() - start


def test_a_page_may_always_take_as_long_as_its_ocr() -> None:
    assert ExtractRules().longest_page_seconds == 120
    assert ExtractRules(ocr_page_seconds=600).longest_page_seconds == 1200


@pytest.mark.parametrize(
    ("harm", "code"), [("crash", "parser_crashed"), ("eat", "out_of_memory"), ("raise", "parser_failed")]
)
def test_harm_after_the_last_page_is_the_document_s(make: Make, harm: str, code: str) -> None:
    path = make({"text": "one"}, {"text": "two", "last": harm})
    error = _fails(path)
    assert error.code == code
    assert "page" not in error.cause
    assert _log(path) == ["text 1", "text 2"]


def test_a_hang_after_the_last_page_ends_at_the_limit_of_the_document(make: Make) -> None:
    error = _fails(make({"text": "one", "last": "hang"}), replace(RULES, seconds=2))
    assert error.code == "extract_timeout"
    assert error.cause == "reading the file took longer than 2 seconds"


def test_a_kill_from_outside_costs_no_page(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel's own count is of the whole machine, where others may be killed just now.
    monkeypatch.setattr(process, "_OOM_KILLS", tmp_path / "none")
    path = make({"text": "one"}, {"do": "kill"})
    error = _fails(path)
    assert (type(error), error.code) == (RetryableError, "parser_killed")
    assert "from outside (SIGKILL) on page 2 of 2" in error.cause
    assert _log(path) == ["text 1", "text 2"]


def test_a_kill_by_the_kernel_is_told_from_others(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(100))

    class Counter:
        """A kernel that has ended one more process each time it is asked."""

        def read_text(self) -> str:
            return f"pgfault 7\noom_kill {next(counts)}\n"

    monkeypatch.setattr(process, "_OOM_KILLS", Counter())
    path = make({"text": "one"}, {"do": "kill"})
    error = _fails(path)
    assert (type(error), error.code) == (RetryableError, "parser_killed")
    assert "by the kernel, which was out of memory" in error.cause
    # One that was near its own limit would have failed on every machine.
    monkeypatch.setattr(process, "_reap", lambda child: (child.wait(), 500 * 2**20)[1])
    found = extract(path, rules=RULES)
    assert [page.reason for page in found.pages] == ["text-layer", "out-of-memory"]


def test_pages_apart_are_kept_and_the_rest_goes_on(make: Make) -> None:
    path = make(
        {"ocr": "1"}, {"ocr": "2"}, {"ocr": "3", "ocr_do": "crash"}, {"ocr": "4"}, {"ocr": "5", "ocr_do": "hang"},
        {"ocr": "6", "ocr_do": "eat"}, {"ocr": "7"},
    )  # fmt: skip
    done: list[OcrPage] = []
    recognise(path, [2, 3, 4, 5, 6, 7], done.append, rules=replace(QUICK, page_seconds=5))
    assert [(page.number, page.text, page.problem) for page in done] == [
        (2, "2", None),
        (3, "", "crashed"),
        (4, "4", None),
        (5, "", "timeout"),
        (6, "", "out-of-memory"),
        (7, "7", None),
    ]
    assert _log(path) == [f"ocr {number}" for number in (2, 3, 4, 5, 6, 7)]


def test_pages_apart_fail_where_too_many_are_harmful(make: Make) -> None:
    path = make(*[{"ocr": "good"}, *[{"ocr": "", "ocr_do": "crash"}] * (MAX_LEFT_OUT + 2)])
    done: list[OcrPage] = []
    with pytest.raises(PermanentError) as caught:
        recognise(path, range(1, MAX_LEFT_OUT + 4), done.append, rules=RULES)
    assert caught.value.code == "parser_crashed"
    assert [page.problem for page in done] == [None, *["crashed"] * MAX_LEFT_OUT]


def test_nothing_is_left_in_the_temporary_folder(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "temporary"
    here.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    found = extract(make({"text": "one"}, {"do": "litter"}), rules=RULES)
    assert [page.reason for page in found.pages] == ["text-layer", "crashed"]
    assert list(here.iterdir()) == []


def test_an_attempt_leaves_no_attachments_to_the_next(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "attachments"
    folder.mkdir()
    path = make({"text": "one", "do": f"write {folder / '0000.pdf'}"}, {"do": "crash"})
    seen: list[list[str]] = []

    def progress(page: int, pages: int) -> None:
        if page == 1:
            seen.append([one.name for one in folder.iterdir()])

    extract(path, rules=RULES, progress=progress, attachments=folder)
    assert len(seen) == 2
    assert all(len(names) <= 1 for names in seen)
    assert [one.name for one in folder.iterdir()] == ["0000.pdf"]


def test_a_caller_that_is_slow_to_listen_costs_no_page(make: Make) -> None:
    path = make({"text": "one"}, {"text": "two"})
    found = extract(path, rules=replace(RULES, page_seconds=1, ocr_page_seconds=0.1), progress=_slowly)
    assert [page.decision for page in found.pages] == ["text", "text"]


def _slowly(page: int, pages: int) -> None:
    # Work, not waiting: the clock of the process is what it is measured by.
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        sum(range(1000))


def test_no_child_is_left(make: Make) -> None:
    before = set(psutil.Process().children(recursive=True))
    extract(make({"text": "one"}, {"do": "hang"}), rules=QUICK)
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture
def port() -> Any:
    """A port of this machine that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_an_attempt_to_use_the_network_is_told(make: Make, port: int) -> None:
    found = extract(make({"text": "got ", "do": f"connect {port}"}), rules=RULES)
    assert found.text == "got PermissionError"
    (warning,) = found.metadata["warnings"]
    assert warning.startswith("a parser tried to use the network and was refused (socket.")
    assert str(port) in warning or "127.0.0.1" in warning


def test_programs_that_a_parser_starts_have_no_network(make: Make, port: int) -> None:
    if not _may_unshare():
        pytest.skip("this kernel, or this container, gives no network namespaces")
    found = extract(make({"text": "", "do": f"spawn {port}"}), rules=RULES)
    assert found.text == "refused"


def test_a_parser_that_is_taken_over_finds_no_key_in_its_environment(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GRISTMILL_OPENAI_API_KEY", "NOTION_TOKEN", "AWS_SECRET_ACCESS_KEY", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, "canary")
    found = extract(make({"text": "", "do": "environment"}), rules=RULES)
    assert str(HOSTILE) in found.text
    assert "canary" not in found.text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="changes its user")
def test_an_ordinary_user_leaves_the_network_too_and_stays_who_it_is(port: int, tmp_path: Path) -> None:
    if not _may_unshare("import ctypes, os; os.setgid(65534); os.setuid(65534)"):
        pytest.skip("this kernel, or this container, gives no user namespaces")
    program = f"""
import ctypes, encodings.idna, os, socket
from pipelines.extract.isolation.sandbox import leave_network
os.setgid(65534); os.setuid(65534)
assert leave_network()
assert (os.getuid(), os.getgid()) == (65534, 65534), (os.getuid(), os.getgid())
try: socket.create_connection(("127.0.0.1", {port}), 5)
except OSError: print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


def _may_unshare(first: str = "") -> bool:
    program = (
        f"from pipelines.extract.isolation.sandbox import leave_network\n{first}\nraise SystemExit(not leave_network())"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_a_large_text_is_read_apart_and_a_small_one_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart: list[str] = []

    def watched(job: Any) -> Any:
        apart.append(job.path.name)
        raise PermanentError("apart", "told by the test")

    monkeypatch.setattr("pipelines.extract.isolation.isolate.extract_isolated", watched)
    for name in ("a.txt", "a.md", "a.json", "a.py", "a.xml"):
        path = tmp_path / name
        path.write_text("word " * (INLINE_BYTES // 5))
        extract(path)
        path.write_text("word " * (INLINE_BYTES // 5 + 1))
        assert _fails(path).code == "apart"
    assert apart == ["a.txt", "a.md", "a.json", "a.py", "a.xml"]


def test_the_text_of_a_document_is_limited_like_its_file(make: Make) -> None:
    path = make({"text": "", "do": "say 500"}, {"text": "", "do": "say 500"})
    assert len(extract(path, rules=replace(RULES, max_bytes=1000)).text) == 1002
    error = _fails(path, replace(RULES, max_bytes=999))
    assert (error.code, error.remedy) == ("too_large", "raise GRISTMILL_MAX_BYTES or split the file")
    assert error.cause == "the file holds 1,000 characters of text, more than the 999 allowed"
