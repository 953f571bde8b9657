"""Any other file system of fsspec: Google's and Microsoft's stores, a disk, memory. Read folder by folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs

from pipelines.errors import ConfigurationError, PermanentError, RetryableError
from worker.object_store import Stored, too_large

_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_ETAGS = ("ETag", "etag", "e_tag")


class TreeStore:
    """A folder of a file system of fsspec. See `ObjectStore`.

    Whether an upload appears whole, and whether it is durable, is up to the file system.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            self._fs, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                "store_url", f"{url} cannot be opened: {error}", "correct the URL, or install its fsspec driver"
            ) from error
        self._root = root.rstrip("/")

    def listing(self) -> Iterator[Stored]:
        """See `ObjectStore`; one folder at a time."""
        pending = [self._root]
        while pending:
            folder = pending.pop()
            try:
                with self._told():
                    entries = self._fs.ls(folder or "/", detail=True)
            except FileNotFoundError as error:
                if folder != self._root:  # it went while we looked elsewhere
                    continue
                raise RetryableError("folder_absent", f"{self._url} is not there", "create it") from error
            for entry in entries:
                name = entry["name"].rstrip("/")
                if entry["type"] == "directory" and name != folder:
                    pending.append(name)
                elif entry["type"] == "file":
                    yield _stored(name.removeprefix(self._root + "/"), entry)

    def look(self, name: str) -> Stored | None:
        """See `ObjectStore`."""
        try:
            with self._told():
                return _stored(name, self._fs.info(self._place(name)))
        except FileNotFoundError:
            return None

    def download(
        self, name: str, path: Path, *, max_bytes: int | None = None, unless: str | None = None
    ) -> Stored | None:
        """See `ObjectStore`. What changes while it is read is told apart by size and time only."""
        with self._told():
            before = _stored(name, self._fs.info(self._place(name)))
            if unless is not None and unless == before.etag:
                return None
            if max_bytes is not None and before.size > max_bytes:
                raise too_large(name, max_bytes)
            with self._fs.open(self._place(name), "rb") as source, path.open("wb") as file:
                shutil.copyfileobj(source, file, 2**20)
            after = _stored(name, self._fs.info(self._place(name)))
        if after.version != before.version or path.stat().st_size != before.size:
            raise RetryableError("changed_meanwhile", f"{name} changed while it was read", "try again later")
        return before

    def upload(self, path: Path, name: str) -> None:
        """See `ObjectStore`."""
        with self._told():
            self._fs.makedirs(self._place(name).rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(path), self._place(name))

    def remove(self, name: str) -> None:
        """See `ObjectStore`."""
        try:
            with self._told():
                self._fs.rm_file(self._place(name))
        except FileNotFoundError:
            return

    def close(self) -> None:
        """See `ObjectStore`; drivers close by themselves."""

    def _place(self, name: str) -> str:
        if ".." in name.split("/"):  # on a disk it would lead out
            raise FileNotFoundError(name)
        return f"{self._root}/{name}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise PermanentError("access_denied", f"{self._url}: access is denied", "allow it") from error
        except OSError as error:
            raise RetryableError("store_failed", f"{self._url} fails: {error}", "try again later") from error


def _stored(name: str, entry: Mapping[str, Any]) -> Stored:
    etag = next((str(entry[one]) for one in _ETAGS if entry.get(one)), "")
    time = next((entry[one] for one in _TIMES if entry.get(one)), None)
    return Stored(name, int(entry.get("size") or 0), _moment(time), etag.strip('"') or None)


def _moment(time: Any) -> datetime | None:
    if isinstance(time, int | float):
        return datetime.fromtimestamp(time, UTC)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return None
