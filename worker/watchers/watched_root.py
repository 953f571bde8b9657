"""One watched folder: whether it is there, how changes in it are noticed, and when to list it again."""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

from pipelines.errors import ConfigurationError
from worker.settings import Settings
from worker.watchers.ignore import Ignore
from worker.watchers.listen import FileSystem, Listener, Signal, file_system_of
from worker.watchers.scan import Listing, scan

logger = logging.getLogger("gristmill.watcher")

POLL_SECONDS = 5.0
"""Polling interval where the file system gives no events and the operator has set none."""

HURRIED_SECONDS = 15.0
"""While a deletion awaits confirmation, the folder and the ledger are compared at least this often."""

SCAN_SHARE = 5.0
"""Between two listings of a folder lies at least this multiple of the time the last one took."""

SETTLE_SECONDS = 1.0
"""Least time between two listings when directories come and go."""


class WatchedRoot:
    """The state of one watched folder.

    Args:
        root: the folder.
        settings: `poll_seconds`, `rescan_seconds`.
        ignore: what is left out.

    Attributes:
        ready: what the ledger knows was read, and the folder listed, since it last appeared.
        absent: it was found missing, and that was said.
        identity: device and inode when it was last ready.
        polling: it is listed every so often instead of being listened to.
        deaf: part of it is not listened to; listen anew at the next listing.
        expecting_news: the next listing is likely to find what no event told, and that is no fault.
        next_scan, next_reload: when to list it, and when to read the ledger again (monotonic seconds).
    """

    def __init__(self, root: Path, settings: Settings, ignore: Ignore) -> None:
        self.root = root
        self.ready = False
        self.absent = False
        self.identity: tuple[int, int] | None = None
        self.polling = False
        self.deaf = False
        self.expecting_news = False
        self.next_scan = -math.inf
        self.next_reload = -math.inf
        self.misnamed: set[Path] = set()
        self._settings = settings
        self._ignore = ignore
        self._file_system = FileSystem("")
        self._listener: Listener | None = None
        self._last_scan_end = -math.inf
        self._scan_cost = 0.0

    @property
    def stable_inodes(self) -> bool:
        """Whether inode numbers there can be compared with those of an earlier day."""
        return self._file_system.stable_inodes

    @property
    def listening(self) -> bool:
        """Whether events are expected from it."""
        return self._listener is not None

    def look(self) -> tuple[int, int] | None:
        """Device and inode of the folder; None when it is not there, or is no directory that answers."""
        try:
            status = os.stat(self.root)  # noqa: PTH116 - called every turn
        except OSError as error:
            logger.debug("cannot look at %s: %s", self.root, error)
            return None
        return (status.st_dev, status.st_ino) if self.root.is_dir() else None

    def is_bare_mount_point(self, identity: tuple[int, int]) -> bool:
        """Whether it lies on another device than before and is empty: what remains when a mount goes."""
        if self.identity is None or self.identity[0] == identity[0]:
            return False
        try:
            return not any(self.root.iterdir())
        except OSError as error:
            logger.debug("cannot look into %s: %s", self.root, error)
            return True

    def lost_listener(self) -> bool:
        """Whether it was listened to, but watchdog's threads have ended."""
        return self._listener is not None and not self._listener.alive()

    def attach(self, put: Callable[[Signal], None]) -> None:
        """Listen to it, or settle for polling and say why."""
        self.deaf = False
        if self.polling:
            return
        self._file_system = file_system_of(self.root)
        if self._settings.poll_seconds > 0:
            self.polling = True
        elif not self._file_system.gives_events:
            self.polling = True
            kind = self._file_system.kind
            logger.info("%s lies on %s, which announces no changes: polling it", self.root, kind)
        else:
            try:
                self._listener = Listener(self.root, self._ignore, put)
            except OSError as error:
                self.polling = True
                logger.warning("%s", why_polling(self.root, error))

    def detach(self) -> None:
        """Stop listening; the next `attach` chooses anew."""
        self.polling = False
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def list(self, clock: Callable[[], float], cancelled: Callable[[], bool]) -> Listing:
        """List what is there."""
        started = clock()
        listing = scan(self.root, self._ignore, stable_inodes=self.stable_inodes, cancelled=cancelled)
        self._last_scan_end = clock()
        self._scan_cost = self._last_scan_end - started
        return listing

    def schedule(self, now: float, *, hurried: bool) -> None:
        """Set the time of the next regular listing; `hurried` while a deletion awaits confirmation."""
        interval = self._settings.rescan_seconds
        if self.polling:
            interval = min(interval, self._settings.poll_seconds or POLL_SECONDS)
        if hurried:
            interval = min(interval, HURRIED_SECONDS)
            self.next_reload = min(self.next_reload, now + HURRIED_SECONDS)
        self.next_scan = now + max(interval, SCAN_SHARE * self._scan_cost)

    def scan_soon(self, now: float) -> None:
        """Have it listed as soon as is decent."""
        self.expecting_news = True
        pause = max(SETTLE_SECONDS, SCAN_SHARE * self._scan_cost)
        self.next_scan = min(self.next_scan, max(now + 0.1, self._last_scan_end + pause))


def why_polling(root: Path, error: OSError) -> str:
    """Why a folder cannot be listened to, and what to do about it."""
    if error.errno == errno.ENOSPC:
        cause, limit = "no inotify watch is left", "fs.inotify.max_user_watches"
    elif error.errno == errno.EMFILE:
        cause, limit = "no inotify instance is left", "fs.inotify.max_user_instances"
    else:
        return f"cannot listen to {root} ({error}): polling it instead"
    return f"cannot listen to {root}, {cause}: polling it instead (raise {limit} with sysctl and start again)"


def check_folders(settings: Settings) -> None:
    """Refuse folders that cannot be watched together.

    Raises:
        ConfigurationError: none is set, one lies in another, or one holds Gristmill's own home.
    """
    if not settings.watch:
        raise ConfigurationError("no_folder", "no folder to watch is set", "set GRISTMILL_WATCH")
    home = settings.home.resolve()
    seen: list[tuple[Path, Path]] = []
    for root in settings.watch:
        real = root.resolve()
        for other, other_real in seen:
            if real.is_relative_to(other_real) or other_real.is_relative_to(real):
                raise ConfigurationError(
                    "overlapping_folders",
                    f"the watched folders {other} and {root} overlap",
                    "name only the outer one in GRISTMILL_WATCH; sub-folders are included",
                )
        if home.is_relative_to(real):
            raise ConfigurationError(
                "home_is_watched",
                f"the watched folder {root} holds {settings.home}, where Gristmill keeps its own files",
                "watch another folder, or set GRISTMILL_HOME to a place outside it",
            )
        seen.append((root, real))
