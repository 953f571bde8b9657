"""Everything dies while everything is used: nothing is lost, doubled, stale or torn. Further seeds: make chaos."""

from __future__ import annotations

import pytest

from tests.chaos.chaos import run, too_much
from tests.chaos.schedule import make_plan

SEED = 1


@pytest.mark.timeout(1200)
def test_everything_dies_and_nothing_is_lost() -> None:
    plan = make_plan(SEED)
    said: list[str] = []
    report = run(plan, say=said.append)
    print(*said, report, sep="\n")
    assert not report.verdict, str(report.verdict)
    assert too_much(report) == []
    assert sum(report.faults.values()) == len(plan.faults) == 20
    assert report.working >= 3, "the kills met nobody at work"
