"""What is remembered of a file to tell later whether it is still the same one, without reading it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileStat:
    """The part of a file's status that matters here.

    Attributes:
        size: bytes.
        mtime_ns: time of the last modification, nanoseconds since the epoch.
        ino: inode number, or 0 where the file system keeps no stable one.
    """

    size: int
    mtime_ns: int
    ino: int

    @classmethod
    def of(cls, status: os.stat_result, *, stable_inodes: bool = True) -> FileStat:
        """Take it from an `os.stat_result`; `stable_inodes=False` leaves the inode out."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino if stable_inodes else 0)


def fingerprint(stat: FileStat) -> str:
    """The text the ledger keeps: `size-mtime_ns-ino`."""
    return f"{stat.size}-{stat.mtime_ns}-{stat.ino}"


def parse_fingerprint(text: str) -> FileStat | None:
    """The inverse of `fingerprint`; None for a text of another form (recorded by someone else)."""
    parts = text.split("-")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return None
    size, mtime_ns, ino = map(int, parts)
    return FileStat(size, mtime_ns, ino)


def unchanged(recorded: str, stat: FileStat) -> bool:
    """Whether a file that was recorded with this fingerprint is still the same at the same path.

    A different inode is a different file (something was renamed over it), unless one side knows no inode.
    """
    if recorded == fingerprint(stat):
        return True
    then = parse_fingerprint(recorded)
    if then is None or (then.size, then.mtime_ns) != (stat.size, stat.mtime_ns):
        return False
    return 0 in (then.ino, stat.ino)
