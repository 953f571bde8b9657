"""A folder as a source: the watcher's way of listing, with its uris and fingerprints, at times instead of at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from pipelines.errors import RetryableError
from worker.connectors.config import SyncConfig
from worker.connectors.contract import (
    Absence,
    Connector,
    Document,
    Gone,
    Incomplete,
    Item,
    Known,
    Surroundings,
    Unchanged,
)
from worker.places import file_uri
from worker.watchers.fingerprint import FileStat, fingerprint, unchanged
from worker.watchers.ignore import Ignore
from worker.watchers.listen import file_system_of
from worker.watchers.scan import look, scan

log = logging.getLogger(__name__)


class FolderConfig(SyncConfig):
    """A folder to keep in step with. One that is watched (GRISTMILL_WATCH) needs no sync."""

    type: Literal["folder"]
    path: Path = Field(description="The folder")
    ignore: tuple[str, ...] = Field((), description="File name patterns to ignore, besides GRISTMILL_IGNORE")

    @field_validator("path", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()


class Folder(Connector):
    """See `Connector`. Its keys are paths relative to the folder; the bytes stay where they are."""

    absence: ClassVar[Absence] = "gone"
    incremental: ClassVar[bool] = False

    def __init__(self, config: FolderConfig, surroundings: Surroundings) -> None:
        self._root = config.path
        self._ignore = Ignore((*surroundings.settings.ignore, *config.ignore))
        self._stability = surroundings.settings.stability_seconds
        self._surroundings = surroundings
        self._stable_inodes = file_system_of(self._root).stable_inodes
        self._identity: tuple[int, int] | None = None
        self._quiet: set[str] = set()

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """All files there. Those written to lately come last, once they were seen to have been quiet for long enough.

        Raises:
            RetryableError: the folder is not there, or is not what it was.
        """
        self._check_root()
        found = scan(self._root, self._ignore, stable_inodes=self._stable_inodes)
        self._check_root()  # a disk that went during the scan would look like so many deletions
        if self._root in found.unreadable or not found.present:
            reason = found.unreadable.get(self._root, "it has gone")
            raise RetryableError("folder_unreadable", f"{self._root} cannot be listed: {reason}", "check it")
        if found.misnamed:
            log.warning("%d names in %s are not UTF-8, e.g. %r", len(found.misnamed), self._root, found.misnamed[0])
        for path, reason in found.unreadable.items():
            yield Incomplete(f"{path} cannot be read: {reason}", prefix=file_uri(path))
        seen = self._now()
        moving = {path: stat for path, stat in found.files.items() if self._written_lately(stat, seen)}
        for path, stat in found.files.items():
            if path not in moving:
                yield self._item(path, stat)
        if moving:
            left = self._stability - (self._now() - seen)
            if left > 0:
                self._surroundings.wait(left)
            yield from self._second_look(moving)

    def visit(self, key: str, known: Known | None, folder: Path) -> Document | Unchanged | Gone:
        """Look at a file. Workers read it themselves, later.

        Raises:
            RetryableError: it is being written, nobody can say, or the whole folder is not there.
        """
        path = self._root / key
        try:
            stat = None if ".." in path.parts else look(path, self._root, self._ignore, **self._inodes)
        except OSError as error:
            raise RetryableError("unreadable", f"{path} cannot be read: {error.strerror}", "check the disk") from error
        if stat is None:
            self._check_root()
            return Gone("it is not in the folder any more", at_once=True)
        version = fingerprint(stat)
        if known is not None and not known.missing and known.version and unchanged(known.version, stat):
            return Unchanged(version=version)
        if version not in self._quiet and self._written_lately(stat, self._now()):
            raise RetryableError("being_written", f"{path} was written to just now", "nothing, it is tried again")
        return Document(None, path.name, file_uri(path), version=version)

    def cursor(self) -> Mapping[str, Any]:
        """The device that the folder lies on, to know an empty mount point by."""
        return dict(self._surroundings.cursor) if self._identity is None else {"device": self._identity[0]}

    def uri_of(self, key: str) -> str:
        """The uri of the file."""
        return file_uri(self._root / key)

    @property
    def _inodes(self) -> Mapping[str, bool]:
        return {"stable_inodes": self._stable_inodes}

    def _now(self) -> float:
        return self._surroundings.clock().timestamp()

    def _item(self, path: Path, stat: FileStat) -> Item:
        key = path.relative_to(self._root).as_posix()
        return Item(key, file_uri(path), fingerprint(stat), content_addressed=self._stable_inodes)

    def _written_lately(self, stat: FileStat, now: float) -> bool:
        """Whether it may still be being written, as far as its time tells; one from the future always may."""
        return stat.mtime_ns / 1e9 > now - self._stability

    def _second_look(self, moving: Mapping[Path, FileStat]) -> Iterator[Item | Incomplete]:
        self._check_root()
        for path, before in moving.items():
            try:
                stat = look(path, self._root, self._ignore, **self._inodes)
            except OSError as error:
                yield Incomplete(f"{path} cannot be read: {error.strerror}", prefix=file_uri(path))
                continue
            if stat == before:
                self._quiet.add(fingerprint(stat))
                yield self._item(path, stat)
            elif stat is not None:
                yield Incomplete(f"{path} is being written", prefix=file_uri(path))

    def _check_root(self) -> None:
        """Make sure that the folder is there and the same as before.

        Raises:
            RetryableError: `folder_absent`.
        """
        try:
            status = self._root.stat()
            empty = not any(self._root.iterdir())
        except PermissionError as error:
            raise RetryableError("folder_unreadable", f"{self._root} may not be read", "allow it") from error
        except OSError as error:
            raise self._absent("is not there") from error
        identity = (status.st_dev, status.st_ino)
        if self._identity is not None and identity != self._identity:
            raise self._absent("has become another folder meanwhile")
        before = self._surroundings.cursor.get("device")
        if self._identity is None and empty and before not in (None, status.st_dev):
            raise self._absent("is empty and lies on another device than before, as a mount point without its mount")
        self._identity = identity

    def _absent(self, how: str) -> RetryableError:
        return RetryableError(
            "folder_absent", f"{self._root} {how}", "mount or create it; nothing is deleted meanwhile"
        )


def open_folder(config: FolderConfig, surroundings: Surroundings) -> Folder:
    """Open a folder for a run. Nothing is read yet."""
    return Folder(config, surroundings)
