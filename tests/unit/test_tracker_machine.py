"""The tracker against a model: random changes to a folder, events that may get lost, and a turned clock.

Whatever happened, once all is quiet the ledger equals the folder; nothing is ever deleted that is there, and
nothing at all while the root is gone; a rename is never a record and a deletion.
"""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from worker.watchers.fingerprint import FileStat, fingerprint
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
from worker.watchers.tracker import Tracker

ROOTS = (Path("/docs"), Path("/more"))
NAMES = ("a.md", "b.md", "c.md", "x/a.md", "x/b.md", "x/y/a.md")
PATHS = tuple(root / name for root in ROOTS for name in NAMES)
MINIMUM = 4

paths = st.sampled_from(PATHS)
told = st.sampled_from(["events", "events", "events", "silently"])


class FolderModel(RuleBasedStateMachine):
    """`disk` is the truth, `ledger` is what the decisions made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.inodes = 0
        self.disk: dict[Path, FileStat] = {}
        self.ledger: dict[Path, str] = {}
        self.gone_roots: set[Path] = set()
        self.unreadable: set[Path] = set()
        self.paused: dict[Path, str] = {}
        self.made: list[Decision] = []
        self.tracker = self.start()

    def start(self) -> Tracker:
        return Tracker(ROOTS, stability_seconds=3.0, grace_seconds=3.0, guard_share=0.5, guard_minimum=MINIMUM)

    # The folder

    def visible(self, path: Path) -> bool:
        return not any(path.is_relative_to(root) for root in self.gone_roots)

    def fresh(self, *, size: int, ino: int | None = None) -> FileStat:
        if ino is None:
            self.inodes += 1
            ino = self.inodes
        return FileStat(size, int(self.now * 1e9) + self.inodes, ino)

    def tell(self, path: Path, how: str) -> None:
        if how == "events":
            self.tracker.handle(self.look(path, touched=True), self.now)

    def look(self, path: Path, *, touched: bool) -> Seen | Vanished | Unreadable:
        if any(path.is_relative_to(place) for place in self.unreadable):
            return Unreadable(path)
        if path in self.disk and self.visible(path):
            return Seen(path, self.disk[path], touched)
        return Vanished(path)

    @initialize(count=st.integers(0, len(PATHS)))
    def a_folder(self, count: int) -> None:
        for path in PATHS[:count]:
            self.disk[path] = self.fresh(size=5)
        for root in ROOTS:
            self.rescan(root)

    @rule(path=paths, size=st.integers(0, 3), how=told)
    def write_anew(self, path: Path, size: int, how: str) -> None:
        if self.visible(path):
            self.disk[path] = self.fresh(size=size)
            self.tell(path, how)

    @rule(path=paths, size=st.integers(0, 3), how=told)
    def write_in_place(self, path: Path, size: int, how: str) -> None:
        if self.visible(path) and path in self.disk:
            self.inodes += 1
            self.disk[path] = self.fresh(size=size, ino=self.disk[path].ino)
            self.tell(path, how)

    @rule(path=paths, how=told)
    def remove(self, path: Path, how: str) -> None:
        if self.visible(path) and path in self.disk:
            del self.disk[path]
            self.tell(path, how)

    @rule(src=paths, dst=paths, how=st.sampled_from(["moved", "events", "reversed", "silently"]))
    def rename(self, src: Path, dst: Path, how: str) -> None:
        if src == dst or src not in self.disk or not (self.visible(src) and self.visible(dst)):
            return
        self.disk[dst] = self.disk.pop(src)
        if how == "moved" and not self.unreadable:
            self.tracker.handle(Moved(src, dst, self.disk[dst]), self.now)
        for path in (src, dst) if how != "reversed" else (dst, src):
            self.tell(path, "silently" if how == "silently" else "events")

    @rule(root=st.sampled_from(ROOTS), how=told)
    def remove_tree(self, root: Path, how: str) -> None:
        if root not in self.gone_roots:
            for path in [path for path in self.disk if path.is_relative_to(root / "x")]:
                self.remove(path, how)

    @rule(root=st.sampled_from(ROOTS), how=st.sampled_from(["events", "silently"]))
    def unmount(self, root: Path, how: str) -> None:
        if root not in self.gone_roots:
            self.gone_roots.add(root)
            for path in PATHS:
                if path.is_relative_to(root):
                    self.tell(path, how)

    @precondition(lambda self: self.gone_roots)
    @rule(data=st.data())
    def mount(self, data: st.DataObject) -> None:
        root = data.draw(st.sampled_from(sorted(self.gone_roots)))
        self.gone_roots.discard(root)
        self.rescan(root)

    @rule(root=st.sampled_from(ROOTS))
    def forbid(self, root: Path) -> None:
        self.unreadable.add(root / "x")

    @rule()
    def permit(self) -> None:
        self.unreadable.clear()

    # The watcher

    @rule(root=st.sampled_from(ROOTS))
    def rescan(self, root: Path) -> None:
        if root in self.gone_roots:
            self.tracker.handle(Scanned(root, {}, root_present=False), self.now)
            return
        listing = {
            path: stat
            for path, stat in self.disk.items()
            if path.is_relative_to(root) and not any(path.is_relative_to(place) for place in self.unreadable)
        }
        unreadable = tuple(place for place in self.unreadable if place.is_relative_to(root))
        known = {path: mark for path, mark in self.ledger.items() if path.is_relative_to(root)}
        self.tracker.handle(Known(root, known), self.now)
        self.tracker.handle(Scanned(root, listing, unreadable), self.now)

    @rule()
    def restart(self) -> None:
        self.tracker = self.start()
        self.paused.clear()
        for root in ROOTS:
            self.rescan(root)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 3.0, 5.0, 70.0]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        for path in self.tracker.due(self.now):
            self.tracker.handle(self.look(path, touched=False), self.now)
        for root in self.gone_roots:
            self.tracker.handle(Scanned(root, {}, root_present=False), self.now)
        for decision in self.tracker.decide(self.now):
            self.apply(decision)
        assert self.tracker.next_deadline() > self.now

    def apply(self, decision: Decision) -> None:
        self.made.append(decision)
        match decision:
            case Record(path, mark):
                assert mark == fingerprint(self.disk[path])
                assert self.ledger.get(path) != mark
                self.ledger[path] = mark
            case Delete(path):
                assert path not in self.disk
                assert self.visible(path)
                del self.ledger[path]
            case Rename(old, new, mark):
                assert old not in self.disk
                assert new in self.disk
                assert new not in self.ledger
                assert self.ledger.pop(old) == mark
                self.ledger[new] = mark
            case Paused(root, kind):
                assert self.paused.get(root) != kind
                self.paused[root] = kind
            case Resumed(root):
                assert root in self.paused
                del self.paused[root]

    def quiet(self) -> None:
        """Let everything settle."""
        for root in ROOTS:
            self.rescan(root)
        rounds = 0
        while self.tracker.next_deadline() != math.inf:
            self.turn(max(self.tracker.next_deadline() - self.now, 0.0))
            rounds += 1
            assert rounds < 200, "the tracker never comes to rest"

    @rule(how=st.sampled_from(["moved", "events", "reversed", "silently"]), data=st.data())
    def a_rename_in_peace_is_only_a_rename(self, how: str, data: st.DataObject) -> None:
        self.unreadable.clear()
        self.quiet()
        sources = [path for path in self.disk if self.visible(path)]
        targets = [path for path in PATHS if self.visible(path) and path not in self.disk and path not in self.ledger]
        if not sources or not targets:
            return
        src, dst = data.draw(st.sampled_from(sources)), data.draw(st.sampled_from(targets))
        expected = dict(self.ledger)
        expected[dst] = expected.pop(src)
        self.made.clear()
        self.rename(src, dst, how)
        if how == "silently":
            for root in ROOTS:
                self.rescan(root)
        for _ in range(30):
            self.turn(1.0)
            self.turn(3.0)
        assert self.made == [Rename(src, dst, expected[dst])]
        assert self.ledger == expected

    def teardown(self) -> None:
        self.unreadable.clear()
        self.quiet()
        truth = {path: fingerprint(stat) for path, stat in self.disk.items() if self.visible(path)}
        for root in ROOTS:
            recorded = {path: mark for path, mark in self.ledger.items() if path.is_relative_to(root)}
            there = {path: mark for path, mark in truth.items() if path.is_relative_to(root)}
            if root in self.gone_roots:
                assert self.paused.get(root) == "absent"
                continue
            assert there.items() <= recorded.items()
            extra = recorded.keys() - there.keys()
            if self.paused.get(root) == "guard":
                assert len(extra) >= MINIMUM
            else:
                assert not extra
                assert root not in self.paused


FolderModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


TestFolderModel = FolderModel.TestCase
