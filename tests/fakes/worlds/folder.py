"""A folder of this machine, looked at by a sync."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from tests.fakes.sync_house import SyncHouse
from tests.fakes.worlds.crawl import Crawl
from tests.fakes.worlds.ground import MAX_BYTES, Ground
from tests.fakes.worlds.world import CONFIRM
from worker.connectors.folder import FolderConfig, open_folder
from worker.places import file_uri


class Files:
    """The part of a world that is the same however the folder is looked at."""

    cannot: ClassVar[Mapping[str, str]]
    sure: ClassVar[bool] = True
    lists_all: ClassVar[bool] = True
    tells_moves: ClassVar[bool] = True
    foresees: ClassVar[frozenset[str]] = frozenset({"changed", "missing"})
    interval: ClassVar[float] = 60.0

    def __init__(self, ground: Ground) -> None:
        self.crawl = Crawl()
        self.root = ground.folder / "files"
        self.root.mkdir()
        self._patch = ground.patch

    def put(self, name: str, text: str) -> None:
        """See `World`."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def drop(self, name: str) -> None:
        """See `World`."""
        self._path(name).unlink()

    def move(self, name: str, to: str) -> None:
        """See `World`."""
        self._path(name).rename(self._path(to))

    def uri(self, name: str) -> str:
        """See `World`."""
        return file_uri(self._path(name))

    def truth(self) -> dict[str, str]:
        """See `World`."""
        return {file_uri(path): " ".join(path.read_text().split()) for path in self.root.rglob("*.txt")}

    def downloads(self) -> int:
        """See `World`. Workers read the files themselves."""
        return self.crawl.visits

    @contextmanager
    def away(self) -> Iterator[None]:
        """See `World`."""
        aside = self.root.with_name("aside")
        self.root.rename(aside)
        yield
        aside.rename(self.root)

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """See `World`. Permissions would not keep root out."""
        place, scandir = self._path(name).parent, os.scandir

        def failing(path: Any) -> Any:
            if Path(path) == place:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return scandir(path)

        assert place != self.root
        with self._patch.context() as patch:
            patch.setattr(os, "scandir", failing)
            yield

    @contextmanager
    def torn(self) -> Iterator[None]:
        """See `World`."""
        raise NotImplementedError
        yield

    @contextmanager
    def unreadable(self, name: str) -> Iterator[None]:
        """See `World`: it is too large."""
        path = self._path(name)
        text = path.read_text()
        path.write_text("x" * (MAX_BYTES + 1))
        yield
        path.write_text(text)

    def _path(self, name: str) -> Path:
        return self.root / f"{name}.txt"


class FolderWorld(Files):
    """See `World`."""

    cannot: ClassVar[Mapping[str, str]] = {"torn": "the folder is read whole before its first file is named"}

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        config = FolderConfig(type="folder", path=self.root, confirm_after=CONFIRM)
        opener = self.crawl.opener(lambda: config, open_folder)
        self.house = SyncHouse(ground.settings(), ground.connection, config, opener)
