"""The tracker, on a turned clock: what it decides, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from worker.watchers.fingerprint import FileStat, fingerprint
from worker.watchers.guard import BURST_SECONDS, MEMORY_SECONDS
from worker.watchers.messages import (
    Decision,
    Delete,
    Known,
    Moved,
    Paused,
    Record,
    Rename,
    Resumed,
    Scanned,
    Seen,
    Unreadable,
    Vanished,
)
from worker.watchers.tracker import EMPTY_SECONDS, Tracker

ROOT = Path("/docs")
OTHER = Path("/more")
A, B, C = ROOT / "a.md", ROOT / "b.md", ROOT / "sub/c.md"
STABILITY, GRACE = 3.0, 3.0


def stat(ino: int, size: int = 10, mtime: float = 1000.0) -> FileStat:
    return FileStat(size, int(mtime * 1e9), ino)


def tracker(
    known: dict[Path, FileStat] | None = None, *, share: float = 0.5, minimum: int = 10, now: float = 0.0
) -> Tracker:
    """A tracker of ROOT and OTHER whose ledger and disk agree on `known`."""
    made = Tracker(
        [ROOT, OTHER],
        stability_seconds=STABILITY,
        grace_seconds=GRACE,
        guard_share=share,
        guard_minimum=minimum,
    )
    for root in (ROOT, OTHER):
        files = {path: is_ for path, is_ in (known or {}).items() if path.is_relative_to(root)}
        made.handle(Known(root, {path: fingerprint(is_) for path, is_ in files.items()}), now)
        made.handle(Scanned(root, files), now)
    assert made.decide(now) == []
    assert made.next_deadline() == math.inf
    return made


def many(count: int) -> dict[Path, FileStat]:
    return {ROOT / f"{number:03}.md": stat(100 + number) for number in range(count)}


def vanish(tracker: Tracker, paths: Iterable[Path], now: float) -> None:
    for path in paths:
        tracker.handle(Vanished(path), now)


def kinds(decisions: list[Decision]) -> list[str]:
    return [type(decision).__name__ for decision in decisions]


def test_a_new_file_is_recorded_once_it_has_been_quiet() -> None:
    t = tracker()
    assert t.handle(Seen(A, stat(1)), 10.0)
    assert t.next_deadline() == 13.0
    assert t.due(12.9) == []
    assert t.decide(12.9) == []
    assert t.due(13.0) == [A]
    assert t.decide(13.0) == [Record(A, fingerprint(stat(1)))]
    assert t.decide(100.0) == []
    assert t.next_deadline() == math.inf


def test_a_growing_file_waits_and_is_recorded_once() -> None:
    t = tracker()
    for second in range(20):
        t.handle(Seen(A, stat(1, size=second + 1)), float(second))
        assert t.decide(float(second)) == []
    assert t.decide(21.9) == []
    assert t.decide(22.0) == [Record(A, fingerprint(stat(1, size=20)))]


def test_a_file_that_grew_without_an_event_waits() -> None:
    t = tracker()
    t.handle(Seen(A, stat(1, size=1)), 0.0)
    assert t.due(3.0) == [A]
    t.handle(Seen(A, stat(1, size=2), touched=False), 3.0)
    assert t.decide(3.0) == []
    assert t.decide(6.0) == [Record(A, fingerprint(stat(1, size=2)))]


def test_an_event_restarts_the_quiet_time_and_a_look_does_not() -> None:
    t = tracker()
    t.handle(Seen(A, stat(1)), 0.0)
    t.handle(Seen(A, stat(1), touched=False), 2.0)
    assert t.due(3.0) == [A]
    t.handle(Seen(A, stat(1), touched=True), 2.0)
    assert t.due(4.9) == []
    assert t.due(5.0) == [A]


def test_an_edit_is_recorded_and_an_echo_is_not() -> None:
    t = tracker({A: stat(1)})
    assert not t.handle(Seen(A, stat(1)), 0.0)
    assert t.decide(10.0) == []
    t.handle(Seen(A, stat(1, mtime=2000)), 10.0)
    assert t.decide(13.0) == [Record(A, fingerprint(stat(1, mtime=2000)))]


def test_an_edit_taken_back_before_it_settled_is_none() -> None:
    t = tracker({A: stat(1)})
    t.handle(Seen(A, stat(1, size=11)), 0.0)
    t.handle(Seen(A, stat(1)), 1.0)
    assert t.decide(10.0) == []


def test_a_file_that_vanishes_while_settling_is_dropped_silently() -> None:
    t = tracker()
    t.handle(Seen(A, stat(1)), 0.0)
    t.handle(Vanished(A), 1.0)
    assert t.due(10.0) == []
    assert t.decide(10.0) == []
    assert t.next_deadline() == math.inf


def test_a_deletion_waits_for_the_grace() -> None:
    t = tracker({A: stat(1), B: stat(2)})
    t.handle(Vanished(A), 10.0)
    assert t.next_deadline() == 13.0
    assert t.decide(12.9) == []
    assert t.due(13.0) == [A]
    assert t.decide(13.0) == [Delete(A)]
    assert t.decide(100.0) == []


def test_a_look_that_finds_it_after_all_stops_the_deletion() -> None:
    t = tracker({A: stat(1)})
    t.handle(Vanished(A), 10.0)
    assert t.due(13.0) == [A]
    t.handle(Seen(A, stat(1), touched=False), 13.0)
    assert t.decide(13.0) == []


def test_nothing_is_decided_where_nobody_can_look() -> None:
    t = tracker({A: stat(1)})
    t.handle(Vanished(A), 0.0)
    t.handle(Seen(B, stat(2)), 0.0)
    for path in t.due(3.0):
        t.handle(Unreadable(path), 3.0)
    assert t.decide(3.0) == []
    assert t.decide(5.9) == []
    assert t.decide(6.0) == [Record(B, fingerprint(stat(2)))]


@pytest.mark.parametrize("gap", [0.0, 0.5, 2.9])
def test_delete_and_write_again_is_an_edit(gap: float) -> None:
    t = tracker({A: stat(1)})
    t.handle(Vanished(A), 0.0)
    assert t.decide(gap) == []
    t.handle(Seen(A, stat(2, size=12)), gap)
    assert t.decide(gap + 3.0) == [Record(A, fingerprint(stat(2, size=12)))]


def test_write_temporary_and_rename_over_is_an_edit() -> None:
    t = tracker({A: stat(1)})
    t.handle(Seen(B, stat(2)), 0.0)
    t.handle(Moved(B, A, stat(2)), 0.1)
    assert t.decide(10.0) == [Record(A, fingerprint(stat(2)))]


def test_keeping_a_backup_by_renaming_is_an_edit_and_a_new_file() -> None:
    t = tracker({A: stat(1)})
    t.handle(Moved(A, B, stat(1)), 0.0)
    t.handle(Seen(A, stat(2)), 0.1)
    decisions = t.decide(10.0)
    assert set(decisions) == {Record(A, fingerprint(stat(2))), Record(B, fingerprint(stat(1)))}


@pytest.mark.parametrize("order", ["moved", "vanished-seen", "seen-vanished", "rescan"])
@pytest.mark.parametrize("target", [C, OTHER / "c.md"])
def test_a_rename_is_one_decision_however_it_is_seen(order: str, target: Path) -> None:
    t = tracker({A: stat(1), B: stat(2)})
    match order:
        case "moved":
            t.handle(Moved(A, target, stat(1)), 0.0)
        case "vanished-seen":
            t.handle(Vanished(A), 0.0)
            t.handle(Seen(target, stat(1)), 0.5)
        case "seen-vanished":
            t.handle(Seen(target, stat(1)), 0.0)
            t.handle(Vanished(A), 0.5)
        case "rescan":
            there = {B: stat(2), target: stat(1)}
            for root in (ROOT, OTHER):
                found = {path: is_ for path, is_ in there.items() if path.is_relative_to(root)}
                t.handle(Scanned(root, found), 0.0)
    decisions = [decision for now in range(20) for decision in t.decide(float(now))]
    assert decisions == [Rename(A, target, fingerprint(stat(1)))]


def test_a_settled_newcomer_has_the_file_looked_at_that_it_may_have_been() -> None:
    t = tracker({A: stat(1)})
    t.handle(Seen(B, stat(1)), 0.0)
    assert set(t.due(3.0)) == {A, B}
    t.handle(Vanished(A), 3.0)
    assert t.decide(3.0) == [Rename(A, B, fingerprint(stat(1)))]


def test_a_hard_link_is_a_file_of_its_own() -> None:
    t = tracker({A: stat(1)})
    t.handle(Seen(B, stat(1)), 0.0)
    for path in t.due(3.0):
        t.handle(Seen(path, stat(1), touched=False), 3.0)
    assert t.decide(3.0) == [Record(B, fingerprint(stat(1)))]


def test_renamed_twice_before_it_settled_comes_from_where_it_was_recorded() -> None:
    t = tracker({A: stat(0)})
    t.handle(Moved(A, B, stat(0)), 0.0)
    t.handle(Moved(B, C, stat(0)), 1.0)
    assert t.decide(10.0) == [Rename(A, C, fingerprint(stat(0)))]


def test_renamed_and_edited_is_a_rename_then_a_record() -> None:
    t = tracker({A: stat(1)})
    t.handle(Moved(A, B, stat(1)), 0.0)
    t.handle(Seen(B, stat(1, size=99)), 2.0)
    assert t.decide(4.0) == []
    assert t.decide(5.0) == [
        Rename(A, B, fingerprint(stat(1))),
        Record(B, fingerprint(stat(1, size=99))),
    ]


def test_renamed_without_inodes_is_known_from_the_event_alone() -> None:
    t = tracker({A: stat(0), B: stat(0)})
    t.handle(Moved(A, C, stat(0)), 0.0)
    assert t.decide(10.0) == [Rename(A, C, fingerprint(stat(0)))]


def test_without_inodes_two_alike_are_never_taken_for_one() -> None:
    t = tracker({A: stat(0)})
    t.handle(Vanished(A), 0.0)
    t.handle(Seen(B, stat(0)), 0.0)
    assert set(t.decide(10.0)) == {Delete(A), Record(B, fingerprint(stat(0)))}


def test_renamed_onto_a_known_file_is_an_edit_and_a_deletion() -> None:
    t = tracker({A: stat(1), B: stat(2)})
    t.handle(Moved(A, B, stat(1)), 0.0)
    assert t.decide(10.0) == [Record(B, fingerprint(stat(1))), Delete(A)]


def test_a_rename_that_still_settles_holds_the_deletion() -> None:
    t = tracker({A: stat(1)})
    t.handle(Moved(A, B, stat(1)), 0.0)
    for second in range(1, 10):
        t.handle(Seen(B, stat(1, size=10 + second)), float(second))
        assert t.decide(float(second)) == []
    assert kinds(t.decide(12.0)) == ["Rename", "Record"]


def test_moved_out_of_every_root_is_a_deletion_and_moved_in_a_new_file() -> None:
    t = tracker({A: stat(1)})
    t.handle(Moved(A, Path("/tmp/a.md"), stat(1)), 0.0)
    t.handle(Moved(Path("/tmp/b.md"), B, stat(2)), 0.0)
    assert set(t.decide(3.0)) == {Delete(A), Record(B, fingerprint(stat(2)))}


def test_at_the_start_old_files_need_not_wait_and_fresh_ones_do() -> None:
    t = tracker()
    old, fresh, future = stat(1, mtime=900.0), stat(2, mtime=999.0), stat(3, mtime=5000.0)
    t.handle(Scanned(ROOT, {A: old, B: fresh, C: future}, wall=1000.0), 0.0)
    assert t.decide(0.0) == [Record(A, fingerprint(old))]
    assert t.decide(1.9) == []
    assert t.decide(2.0) == [Record(B, fingerprint(fresh))]
    assert t.decide(3.0) == [Record(C, fingerprint(future))]


def test_a_later_scan_lets_every_newcomer_settle() -> None:
    t = tracker()
    assert t.handle(Scanned(ROOT, {A: stat(1, mtime=0.0)}), 0.0)
    assert t.decide(2.9) == []
    assert kinds(t.decide(3.0)) == ["Record"]


def test_an_empty_file_waits_for_its_content() -> None:
    t = tracker()
    t.handle(Seen(A, stat(1, size=0)), 0.0)
    assert t.decide(EMPTY_SECONDS - 0.1) == []
    t.handle(Seen(A, stat(1, size=5)), EMPTY_SECONDS - 0.1)
    assert t.next_deadline() <= EMPTY_SECONDS + 2.9
    assert t.decide(EMPTY_SECONDS + 2.9) == [Record(A, fingerprint(stat(1, size=5)))]


def test_a_file_that_stays_empty_is_recorded_anyhow() -> None:
    t = tracker()
    t.handle(Seen(A, stat(1, size=0)), 0.0)
    assert t.next_deadline() == EMPTY_SECONDS
    assert t.decide(EMPTY_SECONDS) == [Record(A, fingerprint(stat(1, size=0)))]


def test_a_missing_root_deletes_nothing_and_goes_on_by_itself() -> None:
    known = many(3)
    t = tracker(known)
    vanish(t, known, 0.0)
    t.handle(Scanned(ROOT, {}, root_present=False), 1.0)
    [paused] = t.decide(1.0)
    assert isinstance(paused, Paused)
    assert (paused.root, paused.kind) == (ROOT, "absent")
    vanish(t, known, 2.0)
    assert t.decide(1000.0) == []
    t.handle(Scanned(ROOT, known), 2000.0)
    assert t.decide(2000.0) == [Resumed(ROOT)]
    assert t.decide(3000.0) == []


def test_an_incomplete_listing_deletes_nothing_where_it_could_not_look() -> None:
    t = tracker({A: stat(1), C: stat(3)})
    scan = Scanned(ROOT, {}, unreadable=(C.parent,))
    assert not scan.complete
    t.handle(scan, 0.0)
    [paused] = t.decide(0.0)
    assert isinstance(paused, Paused)
    assert paused.kind == "unreadable"
    assert str(C.parent) in paused.reason
    assert t.decide(3.0) == [Delete(A)]
    t.handle(Scanned(ROOT, {}), 10.0)
    assert t.decide(10.0) == [Resumed(ROOT)]
    assert t.decide(13.0) == [Delete(C)]


@pytest.mark.parametrize("how", ["events", "scan"])
@pytest.mark.parametrize(("total", "gone", "paused"), [(20, 10, False), (20, 11, True), (9, 9, False), (10, 10, True)])
def test_the_guard_by_share_and_minimum(how: str, total: int, gone: int, paused: bool) -> None:
    known = many(total)
    lost = list(known)[:gone]
    t = tracker(known)
    if how == "events":
        vanish(t, lost, 0.0)
    else:
        t.handle(Scanned(ROOT, {path: known[path] for path in known if path not in lost}), 0.0)
    assert t.decide(2.9) == []
    decisions = t.decide(3.0)
    assert kinds(decisions) == (["Paused"] if paused else ["Delete"] * gone)
    assert t.awaits_confirmation(ROOT) is paused
    if paused:
        assert isinstance(decisions[0], Paused)
        assert f"{gone} of {total}" in decisions[0].reason
        assert "gristmill delete --missing /docs" in decisions[0].remedy
        assert t.decide(1e6) == []


def test_a_tree_that_takes_long_to_remove_is_judged_as_a_whole() -> None:
    known = many(100)
    t = tracker(known)
    decisions: list[Decision] = []
    for second, path in enumerate(known):
        t.handle(Vanished(path), second / 2)
        decisions += t.decide(second / 2)
    decisions += t.decide(1000.0)
    assert kinds(decisions) == ["Paused"]


def test_a_removal_slower_than_any_patience_is_noticed_before_it_is_over() -> None:
    known = many(100)
    t = tracker(known)
    decisions: list[Decision] = []
    for second, path in enumerate(known):
        now = second * 2.0
        t.handle(Vanished(path), now)
        decisions += t.decide(now)
    decisions += t.decide(1000.0)
    assert kinds(decisions).count("Delete") <= 50
    assert kinds(decisions)[-1] == "Paused"
    assert len(known) * 2.0 < MEMORY_SECONDS


def test_steady_coming_and_going_delays_a_deletion_only_so_long() -> None:
    known = many(1000)
    t = tracker(known)
    first = None
    for second, path in enumerate(known):
        t.handle(Vanished(path), float(second))
        if Delete(ROOT / "000.md") in t.decide(float(second)):
            first = second
            break
    assert first == BURST_SECONDS


def test_files_that_come_back_end_the_pause() -> None:
    known = many(20)
    t = tracker(known)
    vanish(t, known, 0.0)
    assert kinds(t.decide(3.0)) == ["Paused"]
    back = list(known)
    for path in back[:10]:
        t.handle(Seen(path, known[path]), 10.0)
    assert t.decide(100.0) == []
    t.handle(Seen(back[10], known[back[10]]), 110.0)
    assert t.next_deadline() <= 110.0
    assert t.decide(110.0) == [Resumed(ROOT)]
    # The rest of a restore still gets its grace, though it has been missing for long.
    for path in back[11:19]:
        t.handle(Seen(path, known[path]), 112.0)
    assert t.decide(112.9) == []
    assert t.decide(113.0) == [Delete(back[19])]


def test_an_operator_who_confirms_ends_the_pause() -> None:
    known = many(20)
    t = tracker(known)
    left = dict(list(known.items())[:5])
    t.handle(Scanned(ROOT, left), 0.0)
    assert kinds(t.decide(3.0)) == ["Paused"]
    t.handle(Known(ROOT, {path: fingerprint(is_) for path, is_ in left.items()}), 10.0)
    t.handle(Scanned(ROOT, left), 10.0)
    assert t.decide(10.0) == [Resumed(ROOT)]
    assert t.decide(1000.0) == []


def test_recording_and_renaming_go_on_while_deletion_is_paused() -> None:
    known = many(20)
    t = tracker(known)
    vanish(t, known, 0.0)
    assert kinds(t.decide(3.0)) == ["Paused"]
    path = next(iter(known))
    t.handle(Seen(A, stat(1)), 10.0)
    t.handle(Seen(ROOT / "moved.md", known[path]), 10.0)
    assert set(t.decide(13.0)) == {
        Record(A, fingerprint(stat(1))),
        Rename(path, ROOT / "moved.md", fingerprint(known[path])),
    }


def test_a_renamed_directory_does_not_trip_the_guard() -> None:
    known = many(50)
    t = tracker(known)
    vanish(t, known, 0.0)
    for path, is_ in known.items():
        t.handle(Seen(ROOT / "new" / path.name, is_), 1.0)
    decisions = [decision for now in range(10) for decision in t.decide(float(now))]
    assert kinds(decisions) == ["Rename"] * 50


def test_a_file_that_may_have_been_renamed_does_not_end_the_pause() -> None:
    known = many(10)
    t = tracker(known)
    vanish(t, known, 0.0)
    assert kinds(t.decide(3.0)) == ["Paused"]
    suspect = ROOT / "000.md"
    t.handle(Seen(A, known[suspect]), 10.0)
    assert t.decide(11.0) == []
    t.handle(Seen(A, stat(1, size=77)), 11.0)
    assert t.decide(14.0) == [Record(A, fingerprint(stat(1, size=77)))]
    assert t.decide(1000.0) == []


def test_the_guard_of_one_root_leaves_another_alone() -> None:
    known = many(20) | {OTHER / "x.md": stat(1)}
    t = tracker(known)
    vanish(t, known, 0.0)
    assert [type(d) for d in t.decide(3.0)] == [Paused, Delete]


def test_a_foreign_fingerprint_is_recorded_anew() -> None:
    t = tracker()
    t.handle(Known(ROOT, {A: "sha256:abc"}), 0.0)
    t.handle(Scanned(ROOT, {A: stat(1)}), 0.0)
    assert t.decide(3.0) == [Record(A, fingerprint(stat(1)))]


def test_paths_outside_every_root_are_no_concern() -> None:
    t = tracker()
    assert not t.handle(Seen(Path("/docs2/a.md"), stat(1)), 0.0)
    assert not t.handle(Vanished(Path("/docs2/a.md")), 0.0)
    t.handle(Unreadable(Path("/docs2/a.md")), 0.0)
    assert t.decide(100.0) == []
