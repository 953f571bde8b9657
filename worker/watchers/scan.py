"""Looking at the disk: one file, or everything beneath a root.

Symbolic links are never followed: what they point to inside the root is mirrored under its own path, and
what lies outside is none of our business. So loops cannot occur. Only regular files count.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from worker.watchers.fingerprint import FileStat
from worker.watchers.ignore import Ignore


@dataclass(slots=True)
class Listing:
    """The result of a walk.

    Attributes:
        root: where the walk began.
        files: every regular file that is not ignored.
        unreadable: what could not be looked into, with the reason; the listing says nothing about what lies
        there. misnamed: files and directories left out because their name is not valid UTF-8, so no
        database, JSON
            document or URL could hold it.
        present: False when the root does not exist or is not a directory.
    """

    root: Path
    files: dict[Path, FileStat] = field(default_factory=dict)
    unreadable: dict[Path, str] = field(default_factory=dict)
    misnamed: list[Path] = field(default_factory=list)
    present: bool = True


def scan(
    root: Path,
    ignore: Ignore,
    *,
    stable_inodes: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
) -> Listing:
    """List the files to be mirrored beneath a root.

    Args:
        root: the directory; it may itself be a symbolic link to one.
        ignore: what to leave out.
        stable_inodes: False on file systems whose inode numbers change from mount to mount.
        cancelled: asked before each directory; when true the walk ends and the root counts as unreadable.

    An error inside makes the listing incomplete (`unreadable`), it is never raised.
    """
    listing = Listing(root)
    pending = [root]
    while pending:
        directory = pending.pop()
        if cancelled():
            listing.unreadable[root] = "the scan was interrupted"
            break
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if (beneath := _visit(listing, entry, ignore, stable_inodes)) is not None:
                        pending.append(beneath)
        except (FileNotFoundError, NotADirectoryError):
            # A sub-directory that went while we walked is simply gone; its parent's files are listed all the
            # same.
            if directory == root:
                listing.present = False
        except OSError as error:
            listing.unreadable[directory] = error.strerror or str(error)
    return listing


def _visit(listing: Listing, entry: os.DirEntry[str], ignore: Ignore, stable_inodes: bool) -> Path | None:
    """Take one entry into the listing; returns the directory to walk, if it is one."""
    path = Path(entry.path)
    if not _storable(entry.name):
        listing.misnamed.append(path)
        return None
    relative = path.relative_to(listing.root)
    try:
        if entry.is_dir(follow_symlinks=False):
            return None if ignore.directory(relative) else path
        if entry.is_file(follow_symlinks=False) and not ignore.file(relative):
            status = entry.stat(follow_symlinks=False)
            listing.files[path] = FileStat.of(status, stable_inodes=stable_inodes)
    except FileNotFoundError:
        return None
    except OSError as error:
        listing.unreadable[path] = error.strerror or str(error)
    return None


def look(path: Path, root: Path, ignore: Ignore, *, stable_inodes: bool = True) -> FileStat | None:
    """The status of the file at `path`, or None when no file to be mirrored is there.

    None stands for: nothing there, not a regular file, ignored, reached through a symbolic link, or a name
    that is not valid UTF-8 — exactly what `scan` would leave out.

    Raises:
        OSError: nobody can say (no permission, an input/output error).
    """
    relative = path.relative_to(root)
    if not relative.parts or not _storable(str(relative)) or ignore.beneath(relative):
        return None
    directory = root
    for part in relative.parts[:-1]:
        directory /= part
        if directory.is_symlink():
            return None
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileStat.of(status, stable_inodes=stable_inodes)


def missing_files(root: Path, known: Iterable[Path], ignore: Ignore) -> list[Path]:
    """Those of the known files beneath `root` that are not on the disk (any more), sorted.

    This is what an operator confirms when the guard has paused deletion. A file about which nobody can say
    (no permission, an input/output error) is not missing. When the root itself is gone, all of them are.
    """
    missing = []
    for path in sorted(known):
        if not path.is_relative_to(root):
            continue
        try:
            if look(path, root, ignore) is None:
                missing.append(path)
        except OSError:
            continue
    return missing


def _storable(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
