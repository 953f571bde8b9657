"""Some days in the life of a workspace, in simulated time: index and workspace agree after every night."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.month import Month


@pytest.mark.timeout(600)
def test_no_page_is_lost_stale_or_wrongly_deleted(dsn: str, tmp_path: Path) -> None:
    with Month(dsn, tmp_path / "home", pages=120, seed=3, share=0.02) as month:
        found = month.run(3)
        states = set(month.house.states().values())
    assert (found.lost, found.stale, found.wrong) == ([], [], [])
    assert found.checks == 3
    assert found.idle == 0
    assert sum(found.events.values()) > 50
    assert sum(found.answers_that_failed.values()) > 3, "the workspace did misbehave"
    assert states <= {("done", None), ("deleted", None)}
