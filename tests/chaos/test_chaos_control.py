"""That the chaos test can fail: its checker sees every kind of flaw, and without the sweep, losses are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.chaos import run
from tests.chaos.checker import Onlooker, Row, compare
from tests.chaos.schedule import Expected, make_plan, marks, parts_of, text
from worker.settings import Settings

EXPECTED = {
    1: Expected(2, "folder", "d0001.md"),
    2: Expected(1, "http", "d0002.md"),
    3: Expected(None, "http", "d0003.md"),
}


def rows_of(source: int, document: int, version: int) -> list[Row]:
    """What the index holds of a version."""
    sections = text(document, version).split("# ")[1:]
    return [(source, f"file:///drop/d{document:04}.md", section) for section in sections]


GOOD = rows_of(1, 1, 2) + rows_of(2, 2, 1)


def test_what_must_be_there_is_right() -> None:
    assert not compare(EXPECTED, GOOD)
    assert len(GOOD) == parts_of(1, 2) + parts_of(2, 1)
    assert [len(marks(content)) for _, _, content in GOOD] == [1] * len(GOOD)


@pytest.mark.parametrize(
    ("flaw", "rows"),
    [
        ("lost", rows_of(1, 1, 2)),
        ("stale", rows_of(1, 1, 1) + rows_of(2, 2, 1)),
        ("torn", GOOD[1:]),
        ("torn", [*GOOD, rows_of(1, 1, 1)[0]]),
        ("torn", [*GOOD, (1, "file:///drop/d0001.md", "a passage from nowhere")]),
        ("duplicates", [*GOOD, GOOD[0]]),
        ("duplicates", GOOD + rows_of(7, 2, 1)),
        ("resurrected", GOOD + rows_of(3, 3, 1)),
        ("unknown", GOOD + rows_of(4, 4, 1)),
        ("misplaced", rows_of(1, 1, 2) + [(2, "file:///drop/old.md", content) for _, _, content in rows_of(2, 2, 1)]),
    ],
)
def test_the_checker_sees(flaw: str, rows: list[Row]) -> None:
    found = compare(EXPECTED, rows)
    assert found[flaw] >= 1, str(found)


@pytest.mark.parametrize(
    ("flaw", "before", "told", "after"),
    [
        ("version regressions", GOOD, None, rows_of(1, 1, 1) + rows_of(2, 2, 1)),
        ("vanished", GOOD, None, rows_of(1, 1, 2)),
        ("resurrected", GOOD, lambda onlooker: onlooker.removed(2, 1), GOOD),
        ("torn", GOOD, None, GOOD[1:]),
    ],
)
def test_the_onlooker_sees(
    flaw: str, before: list[Row], told: Callable[[Onlooker], None] | None, after: list[Row], tmp_path: Path
) -> None:
    onlooker = Onlooker(Settings(home=tmp_path))
    onlooker.judge(lambda: before)
    assert not onlooker.verdict
    if told:
        told(onlooker)
    onlooker.judge(lambda: after)
    assert {kind: onlooker.verdict[kind] for kind in onlooker.verdict.flaws} == {flaw: 1}


def test_a_deletion_lets_a_document_go(tmp_path: Path) -> None:
    onlooker = Onlooker(Settings(home=tmp_path))
    onlooker.judge(lambda: GOOD)
    onlooker.may_go(2)
    onlooker.judge(lambda: rows_of(1, 1, 2))
    onlooker.removed(2, 1)
    onlooker.judge(lambda: rows_of(1, 1, 2) + rows_of(2, 2, 2))  # written again since
    assert not onlooker.verdict, str(onlooker.verdict)


@pytest.mark.timeout(600)
def test_without_the_sweep_documents_are_lost() -> None:
    plan = make_plan(
        1,
        documents=50,
        updated=0,
        deleted=0,
        renamed=0,
        seconds=15,
        faults={"pool": 4, "broker": 1},
    )
    # Without leases that run out, nobody else takes over the work of the dead, as if there were none.
    report = run(plan, swept=False, lease_seconds=3600, drain_seconds=12)
    print(report)
    assert report.working >= 2
    assert 1 <= report.verdict["lost"] < 50
    assert report.verdict["unsettled"] >= report.verdict["lost"]
    for kind in ("stale", "torn", "duplicates", "resurrected", "double commits", "version regressions"):
        assert report.verdict[kind] == 0, str(report.verdict)
