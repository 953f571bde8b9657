"""The pure part of the folder watcher: events and a clock go in, decisions come out. It never touches a disk.

It is level-triggered. An event is only a reason to look at a path; what counts is what is there once it has
been quiet. The caller turns it like this:

    tracker.handle(event, now)                 for everything that happened
    for path in tracker.due(now): look, handle  so that nothing is decided on hearsay
    decisions = tracker.decide(now)            sleep until tracker.next_deadline()

Rules, in the order they were learnt elsewhere:

- A file is recorded once its size and mtime have been the same, and no event came, for `stability_seconds`;
  an empty
  one only after `EMPTY_SECONDS`, since most are about to be written.
- A known file that vanished waits for `grace_seconds`: an editor that deletes and writes again has edited.
- A known file that vanished, while the same one (inode, size, mtime) or the one it was moved to settles
  elsewhere,
  was renamed. A rename onto a path that is known itself is an edit there and a deletion here.
- Deletions of one root are judged together when the root has been quiet, so that a tree which is being
  removed
  counts as a whole (`worker.watchers.guard`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from worker.watchers.fingerprint import FileStat, fingerprint, unchanged
from worker.watchers.guard import DeletionGuard
from worker.watchers.messages import (
    Decision,
    Delete,
    Event,
    Known,
    Moved,
    Record,
    Rename,
    Scanned,
    Seen,
    Unreadable,
    Vanished,
)

EMPTY_SECONDS = 60.0
"""How long an empty file may wait for its content before it is recorded as it is."""


@dataclass(slots=True)
class _Settling:
    stat: FileStat
    since: float
    origin: Path | None = None


@dataclass(slots=True)
class _Root:
    path: Path
    guard: DeletionGuard
    known: dict[Path, str] = field(default_factory=dict)
    settling: dict[Path, _Settling] = field(default_factory=dict)
    missing: dict[Path, float] = field(default_factory=dict)


class Tracker:
    """What is known of the files of some roots, and what is about to be decided.

    Args:
        roots: the watched directories; none lies in another.
        stability_seconds: quiet time before a file is recorded.
        grace_seconds: time before a file that vanished is deleted.
        guard_share: share of a root's files above which a deletion is not believed.
        guard_minimum: fewer deletions than this are always believed.

    `now` is everywhere a monotonic clock in seconds.
    """

    def __init__(
        self,
        roots: Iterable[Path],
        *,
        stability_seconds: float,
        grace_seconds: float,
        guard_share: float,
        guard_minimum: int,
    ) -> None:
        self._stability = stability_seconds
        self._grace = grace_seconds
        self._roots = {
            root: _Root(root, DeletionGuard(root, grace_seconds, guard_share, guard_minimum)) for root in roots
        }
        self._paths_by_fingerprint: dict[str, set[Path]] = {}
        self._deadline = math.inf

    def handle(self, event: Event, now: float) -> bool:
        """Take an event in; returns whether it told anything new (an echo of what is known does not)."""
        news = False
        match event:
            case Known(root, files):
                self._replace_known(self._roots[root], files, now)
            case Scanned():
                news = self._scanned(self._roots[event.root], event, now)
            case Seen(path, stat, touched):
                if root_state := self._root_of(path):
                    news = self._seen(root_state, path, stat, now, touched=touched)
            case Vanished(path):
                if root_state := self._root_of(path):
                    news = self._vanished(root_state, path, now)
            case Moved(src, dst, stat):
                news = self._moved(src, dst, stat, now)
            case Unreadable(path):
                if root_state := self._root_of(path):
                    root_state.missing.pop(path, None)
                    if entry := root_state.settling.get(path):
                        entry.since = now
        return news

    def due(self, now: float) -> list[Path]:
        """Paths that `decide` would act on now: look at each, and tell what is there (with `touched=False`).

        Includes the files that a settled newcomer may have been renamed from.
        """
        paths: dict[Path, None] = {}
        for root in self._roots.values():
            for path, entry in root.settling.items():
                if self._settled_at(entry) <= now:
                    paths[path] = None
                    if path not in root.known:
                        paths.update(dict.fromkeys(self._twins(entry.stat)))
            if root.guard.due_at(root.missing) <= now:
                paths.update(dict.fromkeys(root.missing))
        return list(paths)

    def decide(self, now: float) -> list[Decision]:
        """Everything that can be decided now. What is returned counts as known from here on."""
        decisions: list[Decision] = []
        for root in self._roots.values():
            for path in [path for path, entry in root.settling.items() if self._settled_at(entry) <= now]:
                decisions += self._settle(root, path)
        for root in self._roots.values():
            unclaimed = self._unclaimed(root)
            held = len(root.missing) - len(unclaimed)
            believed, notices = root.guard.judge(unclaimed, held=held, known=len(root.known), now=now)
            decisions += notices
            for path in believed:
                del root.missing[path]
                self._forget(root, path)
                decisions.append(Delete(path))
        self._deadline = self._earliest()
        return decisions

    def next_deadline(self) -> float:
        """When `decide` may next have something to say; infinity when only an event can change that.

        May be early, never late.
        """
        return self._deadline

    def awaits_confirmation(self, root: Path) -> bool:
        """Whether so many files are missing from this root that an operator has to confirm."""
        return self._roots[root].guard.paused == "guard"

    def _seen(self, root: _Root, path: Path, stat: FileStat, now: float, *, touched: bool, age: float = 0.0) -> bool:
        news = root.missing.pop(path, None) is not None
        if news:
            self._deadline = min(self._deadline, now)
        if path in root.known and unchanged(root.known[path], stat):
            root.settling.pop(path, None)
            return news
        entry = root.settling.get(path)
        if entry is None:
            entry = root.settling[path] = _Settling(stat, now - age)
            news = True
        elif touched or entry.stat != stat:
            entry.stat, entry.since = stat, now
        self._deadline = min(self._deadline, self._settled_at(entry))
        return news

    def _vanished(self, root: _Root, path: Path, now: float) -> bool:
        root.settling.pop(path, None)
        if path not in root.known or path in root.missing:
            return False
        root.missing[path] = now
        root.guard.lost(now)
        self._deadline = min(self._deadline, now + self._grace)
        return True

    def _moved(self, src: Path, dst: Path, stat: FileStat, now: float) -> bool:
        origin: Path | None = src
        if source := self._root_of(src):
            # Moved twice before it settled: it still comes from where it was recorded.
            if src not in source.known and src in source.settling:
                origin = source.settling[src].origin
            self._vanished(source, src, now)
        target = self._root_of(dst)
        if target is None:
            return source is not None
        news = self._seen(target, dst, stat, now, touched=True)
        if entry := target.settling.get(dst):
            entry.origin = origin
        return news

    def _scanned(self, root: _Root, scan: Scanned, now: float) -> bool:
        root.guard.scanned(present=scan.root_present, unreadable=scan.unreadable)
        self._deadline = min(self._deadline, now)
        if not scan.root_present:
            # Whatever was reported on the way down says nothing about the files.
            root.settling.clear()
            root.missing.clear()
            return False
        news = False
        for path, stat in scan.listing.items():
            age = 0.0 if scan.wall is None else max(0.0, scan.wall - stat.mtime_ns / 1e9)
            news |= self._seen(root, path, stat, now, touched=False, age=age)
        for path in [path for path in (*root.known, *root.settling) if path not in scan.listing]:
            if not any(path.is_relative_to(place) for place in scan.unreadable):
                news |= self._vanished(root, path, now)
        return news

    def _settle(self, root: _Root, path: Path) -> list[Decision]:
        entry = root.settling.pop(path)
        mark = fingerprint(entry.stat)
        if path in root.known and unchanged(root.known[path], entry.stat):
            return []
        decisions: list[Decision] = []
        origin = None if path in root.known else self._origin(entry)
        if origin is not None:
            source, old = origin
            recorded = source.known[old]
            del source.missing[old]
            self._forget(source, old)
            self._learn(root, path, recorded)
            decisions.append(Rename(old, path, recorded))
            if recorded == mark:
                return decisions
        self._learn(root, path, mark)
        return [*decisions, Record(path, mark)]

    def _origin(self, entry: _Settling) -> tuple[_Root, Path] | None:
        """The missing file that this newcomer was renamed from."""
        candidates = sorted(self._twins(entry.stat)) + ([entry.origin] if entry.origin else [])
        for path in candidates:
            root = self._root_of(path)
            if root is not None and path in root.missing:
                return root, path
        return None

    def _twins(self, stat: FileStat) -> set[Path]:
        """Known files that were this very file (same inode, size and mtime) when they were recorded."""
        return self._paths_by_fingerprint.get(fingerprint(stat), set()) if stat.ino else set()

    def _unclaimed(self, root: _Root) -> dict[Path, float]:
        """The missing files that no settling newcomer may turn out to be."""
        if not root.missing:
            return {}
        claimed: set[Path] = set()
        for other in self._roots.values():
            for path, entry in other.settling.items():
                if path not in other.known:
                    claimed |= self._twins(entry.stat)
                    if entry.origin is not None:
                        claimed.add(entry.origin)
        return {path: since for path, since in root.missing.items() if path not in claimed}

    def _replace_known(self, root: _Root, files: Mapping[Path, str], now: float) -> None:
        for path in [path for path in root.known if path not in files]:
            self._forget(root, path)
            root.missing.pop(path, None)
        for path, mark in files.items():
            self._learn(root, path, mark)
        self._deadline = min(self._deadline, now)

    def _learn(self, root: _Root, path: Path, mark: str) -> None:
        self._forget(root, path)
        root.known[path] = mark
        self._paths_by_fingerprint.setdefault(mark, set()).add(path)

    def _forget(self, root: _Root, path: Path) -> None:
        mark = root.known.pop(path, None)
        if mark is None:
            return
        paths = self._paths_by_fingerprint[mark]
        paths.discard(path)
        if not paths:
            del self._paths_by_fingerprint[mark]

    def _root_of(self, path: Path) -> _Root | None:
        return next((root for root in self._roots.values() if path.is_relative_to(root.path)), None)

    def _settled_at(self, entry: _Settling) -> float:
        wait = self._stability if entry.stat.size else max(self._stability, EMPTY_SECONDS)
        return entry.since + wait

    def _earliest(self) -> float:
        deadline = math.inf
        for root in self._roots.values():
            deadline = min([deadline, *map(self._settled_at, root.settling.values())])
            deadline = min(deadline, root.guard.due_at(self._unclaimed(root)))
        return deadline
