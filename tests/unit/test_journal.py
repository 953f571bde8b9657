"""The journal of what must stay gone: whole lines, whoever writes and whoever dies."""

from __future__ import annotations

import json
import logging
import multiprocessing
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.errors import UnavailableError
from worker.journal import Entry, Journal

THEN = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def entry(number: int, deed: str = "erase", salt: str = "s") -> Entry:
    at = THEN + timedelta(seconds=number)
    return Entry(deed, at, f"{number:064x}", salt, "os:tester", ids=[number, number + 1])  # type: ignore[arg-type]


def test_what_is_written_is_read_back_and_only_its_owner_can(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "home")
    assert journal.read() == []
    full = Entry("erase", THEN, "ab" * 32, "s", "key:crm", "tenant", True, {"sources": 2}, 17, [3, 9])
    journal.append([full, entry(1, "allow")])
    journal.append([])
    journal.append([entry(2, "delete", salt="another")])
    assert journal.read() == [full, entry(1, "allow"), entry(2, "delete", salt="another")]
    assert journal.read("s") == [full, entry(1, "allow")]
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_torn_last_line_costs_itself_and_nothing_that_comes_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    journal = Journal(tmp_path)
    journal.append([entry(1), entry(2)])
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-cut])
    with caplog.at_level(logging.WARNING):
        found = journal.read()
    # Without its last character, the line break, it is still all there.
    assert found == ([entry(1), entry(2)] if cut == 1 else [entry(1)])
    assert ("is torn" in caplog.text) == (cut > 1)
    journal.append([entry(3)])
    assert journal.read() == [*found, entry(3)]


@pytest.mark.parametrize(
    "line",
    [
        '{"deed": "burn", "at": "2026-03-01T12:00:00+00:00", "hash": "%s", "salt": "s"}' % ("0" * 64),
        '{"deed": "erase", "at": "2026-03-01T12:00:00", "hash": "%s", "salt": "s"}' % ("0" * 64),
        '{"deed": "erase", "at": "2026-03-01T12:00:00+00:00", "hash": "00", "salt": "s"}',
        '{"deed": "erase", "at": "2026-03-01T12:00:00+00:00", "hash": "%s", "salt": "s", "x": 1}' % ("0" * 64),
        '{"deed": "erase", "at": "2026-03-01T12:00:00+00:00", "hash": "%s", "salt": "s", "ids": ["1"]}' % ("0" * 64),
        "[]",
        "\x00\x00\x00",
    ],
)
def test_what_is_no_entry_is_left_out(tmp_path: Path, line: str) -> None:
    journal = Journal(tmp_path)
    journal.append([entry(1)])
    with journal.path.open("a") as file:
        file.write(line + "\n")
    journal.append([entry(2)])
    assert journal.read() == [entry(1), entry(2)]


def write(home: Path, first: int) -> None:
    for number in range(first, first + 50):
        Journal(home).append([entry(number), entry(number + 1000)])


def test_two_writers_never_share_a_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(tmp_path, first)) for first in (0, 100, 200)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)
    lines = Journal(tmp_path).path.read_text().splitlines()
    assert len(lines) == 300
    pairs = [int(json.loads(line)["hash"], 16) for line in lines]
    assert sorted(pairs) == sorted(
        n for first in (0, 100, 200) for number in range(first, first + 50) for n in (number, number + 1000)
    )
    assert all(second == first + 1000 for first, second in zip(pairs[::2], pairs[1::2], strict=True)), "in one piece"


def test_a_journal_that_cannot_be_written_or_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(UnavailableError, match="a backup would bring back") as caught:
        Journal(tmp_path).append([entry(1)])
    assert caught.value.code == "journal_unwritable"
    with pytest.raises(UnavailableError) as caught:
        Journal(tmp_path).read()
    assert caught.value.code == "journal_unreadable"
