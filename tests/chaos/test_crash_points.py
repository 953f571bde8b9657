"""A process dies at each point where it hurts; every document ends in the index once, whole and current, or not at all.

`worker/crash.py` has the points. One process of each kind, so that it is known who dies: the next one to come by.
"""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from pipelines.errors import ConfigurationError
from tests.acceptance.conftest import until
from tests.chaos.conftest import FIRST, LEASE_SECONDS, SECOND, SECONDS, CrashHouse, codes
from worker.crash import POINTS, CrashPoint
from worker.settings import load_settings

pytestmark = pytest.mark.timeout(600)

WORKER_POINTS: list[CrashPoint] = ["after_claim", "after_extract", "mid_swap", "before_commit", "after_commit"]

POOL = "-Q ingest"
"""The worker and its only process."""


def short(point: str) -> str:
    return point.replace("_", "")


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_worker_dies_over_an_edit(house: CrashHouse, point: CrashPoint) -> None:
    victim = house.write(f"victim{short(point)}")
    gone = house.write(f"gone{short(point)}")
    house.comes_right()
    before = house.pids(POOL, 2)
    house.arm(point)
    house.write(f"victim{short(point)}", SECOND)
    at = house.died(point, before)
    seen = house.row(victim)
    assert house.told(seen) == codes(f"victim{short(point)}", SECOND if point == "after_commit" else FIRST)
    house.write(f"new{short(point)}")
    house.remove(gone)
    house.comes_right()
    after = house.row(victim)
    assert (after.version, house.row(house.drop.as_uri() + f"/new{short(point)}.md").version) == (2, 1)
    assert len(house.pids(POOL, 2) - before) == 1, "one died, one came"
    if point == "after_commit":
        assert after.settled_at is not None
        assert after.settled_at < at + LEASE_SECONDS / 2, "it was done, and nobody does it again"


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_what_is_deleted_while_its_worker_is_dead_stays_deleted(house: CrashHouse, point: CrashPoint) -> None:
    before = house.pids(POOL, 2)
    house.arm(point)
    assert house.send(f"doomed{short(point)}").status_code == 202
    house.died(point, before)
    house.withdraw(f"doomed{short(point)}")
    assert house.send(f"next{short(point)}").status_code == 202
    house.comes_right()


def test_what_is_deleted_while_its_worker_is_slow_stays_deleted(house: CrashHouse) -> None:
    asked = len(house.provider.requests)
    house.provider.misbehave("slow")
    assert house.send("slow").status_code == 202
    until(lambda: len(house.provider.requests) > asked, "the request for its vectors", seconds=SECONDS)
    house.withdraw("slow")
    house.provider.release()
    assert house.send("afterslow").status_code == 202  # for the same worker, so it comes when the work is over
    house.comes_right()
    assert "dropped, no longer ours: sent:slow" in house.log.read_text()


def test_a_watcher_dies_before_it_tells(house: CrashHouse) -> None:
    before = house.pids("worker.watchers")
    house.arm("after_record")
    uri = house.write("untold")
    house.died("after_record", before)
    house.comes_right()
    assert house.row(uri).version == 1


def test_a_watcher_dies_after_it_told(house: CrashHouse) -> None:
    before = house.pids("worker.watchers")
    house.arm("after_publish")
    uri = house.write("told")
    house.died("after_publish", before)
    house.write("later")  # taken by the next watcher, which has looked at everything by then
    house.comes_right()
    assert house.row(uri).version == 1


def test_an_upload_is_sent_again_after_the_service_died(house: CrashHouse) -> None:
    before = house.pids("worker.receivers")
    house.arm("after_record")
    with pytest.raises(httpx.TransportError):
        house.send("resent", key="once")
    house.died("after_record", before)
    until(house.serves, "the HTTP service to be back", seconds=SECONDS)
    again = house.send("resent", key="once")
    assert (again.status_code, again.headers.get("Idempotency-Replayed")) == (202, "true")
    house.comes_right()
    assert house.send("resent").json()["sources"][0]["unchanged"], "nor does it need the key"
    house.comes_right()
    assert house.row("sent:resent").version == 1


def test_a_sync_dies_between_its_ledger_and_its_memory(house: CrashHouse) -> None:
    before = house.pids("-Q sync", 2)
    kept = house.write("kept", folder=house.synced)
    house.comes_right()
    house.arm("after_sync_record")
    fleeting = house.write("fleeting", folder=house.synced)
    house.died("after_sync_record", before)
    house.remove(fleeting)
    assert house.rows("update syncs set failures = 0 returning name") == [("notes",)]  # 10 s less
    second = house.write("second", folder=house.synced)  # it comes with a run that misses the other one
    house.comes_right()
    assert [house.row(uri).version for uri in (kept, second)] == [1, 1]
    assert house.rows("select key from synced where removed_at is null order by key") == [("kept.md",), ("second.md",)]


def test_every_point_is_somewhere_and_every_place_is_a_point() -> None:
    sources = [path.read_text("utf-8") for path in (Path(__file__).parents[2] / "worker").rglob("*.py")]
    placed = {name for source in sources for name in re.findall(r"crash_point(?:\(|, )\"(\w+)\"", source)}
    assert placed == set(POINTS)


def test_a_point_that_does_not_exist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv("GRISTMILL_CRASH_AT", "after_claim, mid_swap")
    assert load_settings().crash_at == ("after_claim", "mid_swap")
    monkeypatch.setenv("GRISTMILL_CRASH_AT", "mid_swop")
    with pytest.raises(ConfigurationError, match=r"GRISTMILL_CRASH_AT is not valid: .*'mid_swop' is not a"):
        load_settings()
