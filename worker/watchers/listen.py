"""Hearing of changes: watchdog's native observer for one root, and where it would hear nothing.

Only the names of what happened are passed on, to a queue; the thread that owns the tracker looks for itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from worker.watchers.ignore import Ignore

# Neither opening nor reading is asked for: our own extraction would wake us for ever.
_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileClosedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]

_NO_EVENTS = re.compile(
    r"nfs\d?|cifs|smb\d*|smbfs|fuse(\..+)?|fuseblk|9p|vboxsf|prl_fs|vmhgfs|afs|ceph|glusterfs|lustre|drvfs"
)
_NO_STABLE_INODES = re.compile(r"vfat|msdos|exfat|cifs|smb\d*|smbfs|fuse(\..+)?|fuseblk|9p|vboxsf|prl_fs|vmhgfs|drvfs")


@dataclass(frozen=True, slots=True)
class Touched:
    """Something happened to the file at `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file went from `src` to `dst`."""

    src: Path
    dst: Path


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A directory beneath `root` came, went or moved as a whole: list the root anew.

    Attributes:
        deaf: it came from elsewhere, and its inside is not listened to until we listen anew.
    """

    root: Path
    deaf: bool = False


Signal: TypeAlias = Touched | Renamed | Disturbed


@dataclass(frozen=True, slots=True)
class FileSystem:
    """The kind of file system a folder lies on, e.g. `ext4` or `nfs4`; empty where it cannot be told."""

    kind: str

    @property
    def gives_events(self) -> bool:
        """False where changes made by another machine (or by the host of this one) are not announced."""
        return _NO_EVENTS.fullmatch(self.kind) is None

    @property
    def stable_inodes(self) -> bool:
        """False where a file may have another inode number after the next mount."""
        return _NO_STABLE_INODES.fullmatch(self.kind) is None


def file_system_of(path: Path, mounts: str | None = None) -> FileSystem:
    """The file system that `path` lies on.

    Args:
        path: an existing directory.
        mounts: a table in the format of `/proc/mounts` (fstab(5)); by default this machine's, where it has
        one.
    """
    if mounts is None:
        table = Path("/proc/mounts")
        mounts = table.read_text(encoding="utf-8", errors="surrogateescape") if table.exists() else ""
    real, best, kind = path.resolve(), -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
        # Of several mounts on one point the last one is on top.
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return FileSystem(kind)


class Listener:
    """Listens to everything beneath one root until `close`.

    Args:
        root: the directory.
        ignore: directory events in ignored places are dropped.
        put: called in watchdog's thread with each signal; must not block.

    Raises:
        OSError: the native interface refused, e.g. `ENOSPC` (no inotify watch left) or `EMFILE`.
    """

    def __init__(self, root: Path, ignore: Ignore, put: Callable[[Signal], None]) -> None:
        self._observer = _observer()
        self._observer.schedule(_Handler(root, ignore, put), str(root), recursive=True, event_filter=_EVENTS)
        self._observer.start()

    def alive(self) -> bool:
        """Whether its threads still run; watchdog ends them when the root is removed, or on a fault of its
        own."""
        return self._observer.is_alive() and all(emitter.is_alive() for emitter in self._observer.emitters)

    def close(self) -> None:
        """Stop listening; returns when no more signal can come."""
        self._observer.stop()
        self._observer.join()


def _observer() -> BaseObserver:
    observer: BaseObserver
    if sys.platform == "linux":
        from watchdog.observers.inotify import InotifyObserver

        # Without full events a directory moved in looks like a new one, and its inside would never be heard.
        observer = InotifyObserver(generate_full_events=True)
    else:
        observer = Observer()
    return observer


class _Handler(FileSystemEventHandler):
    def __init__(self, root: Path, ignore: Ignore, put: Callable[[Signal], None]) -> None:
        self._root = root
        self._ignore = ignore
        self._put = put

    def on_any_event(self, event: FileSystemEvent) -> None:
        src, dst = _path(event.src_path), _path(event.dest_path)
        if not event.is_directory:
            if src is not None and dst is not None:
                self._put(Renamed(src, dst))
            elif (path := src or dst) is not None:
                self._put(Touched(path))
        elif isinstance(event, DirCreatedEvent) and sys.platform == "linux":
            # Made in place, so its files are announced one by one; elsewhere it may have come from outside.
            return
        elif self._concerns_us(src) or self._concerns_us(dst):
            self._put(Disturbed(self._root, deaf=src is None))

    def _concerns_us(self, path: Path | None) -> bool:
        if path is None or not path.is_relative_to(self._root):
            return False
        relative = path.relative_to(self._root)
        return not any(self._ignore.directory(part) for part in (relative, *list(relative.parents)[:-1]))


def _path(name: bytes | str) -> Path | None:
    return Path(os.fsdecode(name)) if name else None
