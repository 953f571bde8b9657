"""What the tracker is told (events) and what it answers (decisions). Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from worker.watchers.fingerprint import FileStat


@dataclass(frozen=True, slots=True)
class Known:
    """The ledger's live files beneath a root, each with the fingerprint last recorded. Replaces what was
    known."""

    root: Path
    files: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A regular file is at `path`.

    Attributes:
        touched: something happened to the file just now, so its quiet time starts anew even if its status is
            the same; False when somebody merely looked.
    """

    path: Path
    stat: FileStat
    touched: bool = True


@dataclass(frozen=True, slots=True)
class Vanished:
    """No file that is to be mirrored is at `path`."""

    path: Path


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Nobody can say what is at `path` now (no permission, an input/output error)."""

    path: Path


@dataclass(frozen=True, slots=True)
class Moved:
    """A file was renamed from `src`, and is at `dst` now."""

    src: Path
    dst: Path
    stat: FileStat


@dataclass(frozen=True, slots=True)
class Scanned:
    """Everything beneath a root was listed.

    Attributes:
        listing: every file to be mirrored.
        unreadable: directories (or files) that could not be looked into; nothing is concluded about what lies
            there. The root itself when the listing was cut short.
        root_present: False when the root is missing or not mounted; the listing then says nothing.
        wall: the time of the scan, seconds since the epoch, when files that have long been quiet need not
        wait
            (a start-up scan); None when every file has to be watched for its quiet time.
    """

    root: Path
    listing: Mapping[Path, FileStat]
    unreadable: tuple[Path, ...] = ()
    root_present: bool = True
    wall: float | None = None

    @property
    def complete(self) -> bool:
        """Whether a file that is not listed is really gone."""
        return self.root_present and not self.unreadable


Event: TypeAlias = Known | Seen | Vanished | Unreadable | Moved | Scanned


@dataclass(frozen=True, slots=True)
class Record:
    """The file is new or has changed, and has been quiet."""

    path: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Delete:
    """The file is gone."""

    path: Path


@dataclass(frozen=True, slots=True)
class Rename:
    """The file recorded as `old` is at `new` now; `fingerprint` belongs to the content that was recorded.

    A file that was edited as well gets a `Record` right after.
    """

    old: Path
    new: Path
    fingerprint: str


PauseKind: TypeAlias = Literal["absent", "guard", "unreadable"]


@dataclass(frozen=True, slots=True)
class Paused:
    """Deletion stands still for this root (kind `unreadable`: for what lies in the unreadable part of it)."""

    root: Path
    kind: PauseKind
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Deletion goes on for this root."""

    root: Path


Decision: TypeAlias = Record | Delete | Rename | Paused | Resumed
