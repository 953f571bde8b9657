"""The folder watcher: one loop that owns the clock, the tracker and the sink.

Changes are heard of by events where the file system gives them, and found by listing the folder at the
start, every `rescan_seconds`, and whenever events alone would not tell; where there are no events it is
listed every `poll_seconds`. Either way the tracker decides.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from pipelines.errors import PermanentError, RetryableError
from worker.settings import Settings
from worker.watchers.ignore import Ignore
from worker.watchers.listen import Disturbed, Renamed, Signal, Touched
from worker.watchers.messages import (
    Decision,
    Delete,
    Event,
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
from worker.watchers.scan import Listing, look
from worker.watchers.sink import Sink
from worker.watchers.tracker import Tracker
from worker.watchers.watched_root import WatchedRoot, check_folders

logger = logging.getLogger("gristmill.watcher")

TICK_SECONDS = 1.0
"""Longest sleep: roots are checked for their presence this often."""

EVENTS_BEFORE_RESCAN = 10_000
"""After so many events the folders are listed: the kernel's queue (16,384 on Linux) may have overflown
unheard."""

RETRY_CAP_SECONDS = 30.0
"""Longest wait before a sink that refused is tried again."""


class FolderWatcher:
    """Mirrors the folders in `settings.watch` into the sink.

    Args:
        settings: `watch`, `ignore`, `home`, `delete_guard_*` and the times.
        sink: the ledger.
        clock: monotonic seconds.
        wall: seconds since the epoch, comparable with the mtime of files.

    Raises:
        ConfigurationError: no folder is set, one lies in another, or one holds Gristmill's own home.
    """

    def __init__(
        self,
        settings: Settings,
        sink: Sink,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        check_folders(settings)
        self._settings = settings
        self._sink = sink
        self._clock = clock
        self._wall = wall
        self._ignore = Ignore(settings.ignore)
        self._watches = {root: WatchedRoot(root, settings, self._ignore) for root in settings.watch}
        self._tracker = Tracker(
            settings.watch,
            stability_seconds=settings.stability_seconds,
            # A rename between two polled folders is seen up to one interval apart.
            grace_seconds=settings.stability_seconds + settings.poll_seconds,
            guard_share=settings.delete_guard_share,
            guard_minimum=settings.delete_guard_minimum,
        )
        self._signals: queue.SimpleQueue[Signal | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._outbox: deque[Decision] = deque()
        self._heard = 0
        self._failures = 0
        self._retry_at = -math.inf

    def run(self) -> None:
        """Watch until `stop` is called. What is still undecided then is found again by the next start."""
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            for watch in self._watches.values():
                watch.detach()

    def stop(self) -> None:
        """Make `run` return soon; may be called from any thread and from a signal handler."""
        self._stopping.set()
        self._signals.put(None)

    def _turn(self) -> None:
        signals = self._collect()
        if self._heard >= EVENTS_BEFORE_RESCAN:
            self._heard = 0
            for watch in self._watches.values():
                watch.scan_soon(self._clock())
        for watch in self._watches.values():
            self._tend(watch)
        for signal in signals:
            self._hear(signal)
        now = self._clock()
        if now >= self._tracker.next_deadline():
            for path in self._tracker.due(now):
                self._look(path, touched=False)
            # A root that went while we looked makes every file look gone.
            for watch in self._watches.values():
                if watch.ready and watch.look() != watch.identity:
                    self._absent(watch)
            for decision in self._tracker.decide(now):
                if isinstance(decision, Paused | Resumed):
                    _log(decision)
                else:
                    self._outbox.append(decision)
        self._deliver()

    def _collect(self) -> list[Signal]:
        """Sleep until there is something to do; returns what was heard, each thing once."""
        wake = min(
            self._tracker.next_deadline(),
            self._retry_at if self._outbox else math.inf,
            *(watch.next_scan if watch.ready else math.inf for watch in self._watches.values()),
        )
        heard: dict[Signal, None] = {}
        try:
            signal = self._signals.get(timeout=min(max(wake - self._clock(), 0.0), TICK_SECONDS))
            # A moment for the rest of a burst: a large copy writes the same file a thousand times.
            self._stopping.wait(0.01)
            while True:
                if signal is not None:
                    heard[signal] = None
                    self._heard += 1
                signal = self._signals.get_nowait()
        except queue.Empty:
            return list(heard)

    # What is there: presence, listening, listing

    def _tend(self, watch: WatchedRoot) -> None:
        identity = watch.look()
        if identity is None:
            self._absent(watch)
        elif not watch.ready:
            self._begin(watch, identity)
        elif identity != watch.identity or watch.lost_listener():
            logger.info("%s was replaced or mounted anew, looking at it from the start", watch.root)
            watch.detach()
            self._begin(watch, identity)
        elif self._clock() >= watch.next_scan:
            self._rescan(watch)

    def _absent(self, watch: WatchedRoot) -> None:
        if watch.absent:
            return
        watch.detach()
        watch.ready = False
        watch.absent = True
        self._tracker.handle(Scanned(watch.root, {}, root_present=False), self._clock())

    def _begin(self, watch: WatchedRoot, identity: tuple[int, int]) -> None:
        """Start with a root: what the ledger knows, then listening, then what is there."""
        if watch.is_bare_mount_point(identity):
            self._absent(watch)
            return
        if not self._reload(watch):
            return
        watch.attach(self._signals.put)
        listing = watch.list(self._clock, self._stopping.is_set)
        if self._stopping.is_set():
            return
        if not listing.present:
            self._absent(watch)
            return
        watch.ready, watch.absent, watch.identity = True, False, identity
        self._take(watch, listing, wall=self._wall())
        how = "polling" if watch.polling else "listening"
        logger.info("watching %s (%d files, %s)", watch.root, len(listing.files), how)

    def _rescan(self, watch: WatchedRoot) -> None:
        expected, watch.expecting_news = watch.expecting_news, False
        if self._clock() >= watch.next_reload:
            self._reload(watch)
        if watch.deaf:
            watch.detach()
            watch.attach(self._signals.put)
        listing = watch.list(self._clock, self._stopping.is_set)
        if self._stopping.is_set():
            return
        if not listing.present:
            self._absent(watch)
            return
        if self._take(watch, listing, wall=None) and watch.listening and not expected:
            # Events should have told; perhaps watchdog has lost track of a directory.
            logger.info("a rescan of %s found what no event had told, listening anew", watch.root)
            watch.deaf = True
            watch.scan_soon(self._clock())

    def _take(self, watch: WatchedRoot, listing: Listing, *, wall: float | None) -> bool:
        for path in listing.misnamed:
            if path not in watch.misnamed:
                watch.misnamed.add(path)
                logger.error("%s is left out: its name is not valid UTF-8 (rename it)", ascii(str(path)))
        now = self._clock()
        event = Scanned(watch.root, listing.files, tuple(listing.unreadable), wall=wall)
        news = self._tracker.handle(event, now)
        watch.schedule(self._clock(), hurried=self._tracker.awaits_confirmation(watch.root))
        return news

    def _reload(self, watch: WatchedRoot) -> bool:
        """Read anew what the ledger knows; False when that cannot be had now and was never had."""
        now = self._clock()
        if self._outbox:
            # It does not know yet what is on its way to it.
            return watch.ready
        if now < self._retry_at:
            return watch.ready
        try:
            known = self._sink.known_files(watch.root)
        except RetryableError as error:
            self._failed(f"cannot read what is known of {watch.root}: {error}")
            return watch.ready
        except Exception:
            logger.exception("cannot read what is known of %s", watch.root)
            self._failed("")
            return watch.ready
        self._failures = 0
        self._tracker.handle(Known(watch.root, known), now)
        watch.next_reload = now + self._settings.rescan_seconds
        return True

    # What was heard

    def _hear(self, signal: Signal) -> None:
        match signal:
            case Touched(path):
                self._look(path, touched=True)
            case Renamed(src, dst):
                self._renamed(src, dst)
            case Disturbed(root, deaf):
                watch = self._watches[root]
                watch.deaf |= deaf
                watch.scan_soon(self._clock())

    def _renamed(self, src: Path, dst: Path) -> None:
        found = self._inspect(dst, touched=True)
        now = self._clock()
        if isinstance(found, Seen):
            self._tracker.handle(Moved(src, dst, found.stat), now)
        elif found is not None:
            self._tracker.handle(found, now)
        self._look(src, touched=True)

    def _look(self, path: Path, *, touched: bool) -> None:
        event = self._inspect(path, touched=touched)
        if event is not None:
            self._tracker.handle(event, self._clock())

    def _inspect(self, path: Path, *, touched: bool) -> Event | None:
        watch = self._watch_of(path)
        if watch is None or not watch.ready:
            return None
        try:
            stat = look(path, watch.root, self._ignore, stable_inodes=watch.stable_inodes)
        except OSError as error:
            logger.debug("cannot look at %s: %s", path, error)
            return Unreadable(path)
        return Vanished(path) if stat is None else Seen(path, stat, touched)

    def _watch_of(self, path: Path) -> WatchedRoot | None:
        return next((watch for watch in self._watches.values() if path.is_relative_to(watch.root)), None)

    # What was decided

    def _deliver(self) -> None:
        if self._clock() < self._retry_at:
            return
        while self._outbox and not self._stopping.is_set():
            decision = self._outbox[0]
            try:
                self._apply(decision)
            except PermanentError as error:
                logger.error("%s was refused: %s", decision, error)
            except RetryableError as error:
                self._failed(f"the ledger cannot take {len(self._outbox)} decisions: {error}")
                return
            except Exception:
                logger.exception("the ledger cannot take %s", decision)
                self._failed("")
                return
            else:
                self._failures = 0
                _log(decision)
            self._outbox.popleft()

    def _apply(self, decision: Decision) -> None:
        match decision:
            case Record(path, mark):
                self._sink.record_file(path, mark)
            case Delete(path):
                self._sink.delete_file(path)
            case Rename(old, new, mark):
                self._sink.rename_file(old, new, mark)

    def _failed(self, message: str) -> None:
        delay = min(RETRY_CAP_SECONDS, 0.5 * 2 ** min(self._failures, 10))
        self._failures += 1
        self._retry_at = self._clock() + delay
        logger.warning("%strying again in %.1f s", f"{message}; " if message else "", delay)


def _log(decision: Decision) -> None:
    match decision:
        case Record(path):
            logger.info("recorded %s", path)
        case Delete(path):
            logger.info("deleted %s", path)
        case Rename(old, new):
            logger.info("renamed %s to %s", old, new)
        case Paused(_, kind, reason, remedy):
            what = "in a part of it" if kind == "unreadable" else "there"
            logger.warning("%s; deletion %s is paused (%s)", reason, what, remedy)
        case Resumed(root):
            logger.info("deletion in %s goes on", root)
