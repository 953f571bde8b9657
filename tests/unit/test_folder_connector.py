"""A folder as a source: what is listed, what a visit finds, and when nothing is concluded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipelines.errors import RetryableError
from worker.connectors import folder as folder_module
from worker.connectors.contract import Document, Gone, Incomplete, Item, Known, Surroundings, Unchanged
from worker.connectors.folder import Folder, FolderConfig, open_folder
from worker.places import file_uri
from worker.settings import Settings
from worker.watchers.fingerprint import FileStat, fingerprint
from worker.watchers.ignore import Ignore
from worker.watchers.scan import scan

NOW = 1_800_000_000.0
OLD = NOW - 60


class Time:
    """A clock that stands still but for waits, during which something may happen."""

    def __init__(self) -> None:
        self.now = NOW
        self.waits: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


Opened = Callable[..., Folder]


@pytest.fixture
def opened(root: Path, tmp_path: Path, time: Time) -> Opened:
    def open_one(cursor: Mapping[str, Any] | None = None, **fields: Any) -> Folder:
        config = FolderConfig.model_validate({"type": "folder", "path": str(root), **fields})
        settings = Settings(home=tmp_path / "home", ignore=("*.bak",), stability_seconds=3)
        return open_folder(config, Surroundings(settings, time.clock, time.wait, cursor or {}))

    return open_one


def put(path: Path, text: str = "text", *, at: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at, at))
    return path


def mark(path: Path) -> str:
    return fingerprint(FileStat.of(path.stat()))


def keys(folder: Folder) -> list[str]:
    return sorted(one.key for one in folder.listing(full=True) if isinstance(one, Item))


# --- listing ---------------------------------------------------------------------------------------------------


def test_files_have_the_uris_and_fingerprints_of_the_watcher(root: Path, opened: Opened) -> None:
    path = put(root / "x/Été à Paris.md")
    (found,) = opened().listing(full=True)
    assert found == Item("x/Été à Paris.md", file_uri(path), mark(path), content_addressed=True)
    assert opened().uri_of("x/Été à Paris.md") == file_uri(path)
    ((_, stat),) = scan(root, Ignore()).files.items()
    assert found == Item(found.key, path.as_uri(), fingerprint(stat), content_addressed=True)


def test_ignored_names_are_left_out(root: Path, opened: Opened) -> None:
    for name in ("a.md", ".git/config", "~$a.docx", "b.bak", "drafts/c.md", "d.log"):
        put(root / name)
    assert keys(opened(ignore=["drafts/", "*.LOG"])) == ["a.md"]


def test_where_inodes_are_not_stable_no_rename_is_told_by_them(
    root: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "file_system_of", lambda path: folder_module_file_system("9p"))
    path = put(root / "a.md")
    (found,) = opened().listing(full=True)
    assert isinstance(found, Item)
    assert not found.content_addressed
    assert found.version == f"4-{path.stat().st_mtime_ns}-0"


def folder_module_file_system(kind: str) -> Any:
    from worker.watchers.listen import FileSystem

    assert not FileSystem(kind).stable_inodes
    return FileSystem(kind)


def test_what_cannot_be_read_makes_it_incomplete(root: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root / "a.md")
    put(root / "closed/b.md")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may look everywhere
    found = list(opened().listing(full=True))
    assert [one.key for one in found if isinstance(one, Item)] == ["a.md"]
    (incomplete,) = (one for one in found if isinstance(one, Incomplete))
    assert incomplete.prefix == file_uri(root / "closed")
    assert "Permission denied" in incomplete.reason


# --- files that are being written ------------------------------------------------------------------------------


def test_a_file_that_is_quiet_for_long_enough_is_taken(root: Path, opened: Opened, time: Time) -> None:
    put(root / "old.md")
    path = put(root / "new.md", at=NOW - 1)
    folder = opened()
    found = list(folder.listing(full=True))
    assert [one.key for one in found if isinstance(one, Item)] == ["old.md", "new.md"], "those in doubt come last"
    assert time.waits == [3.0], "one wait for all"
    assert isinstance(folder.visit("new.md", None, root), Document)
    assert mark(path) in {one.version for one in found if isinstance(one, Item)}


def test_a_half_written_file_is_never_taken(root: Path, opened: Opened, time: Time) -> None:
    path = put(root / "new.md", "half", at=NOW - 1)
    time.meanwhile = lambda: put(path, "half and more", at=NOW + 1)
    folder = opened()
    assert list(folder.listing(full=True)) == [Incomplete(f"{path} is being written", prefix=file_uri(path))]
    with pytest.raises(RetryableError, match="just now") as caught:
        folder.visit("new.md", None, root)
    assert caught.value.code == "being_written"
    time.now += 60
    assert keys(opened()) == ["new.md"]
    assert time.waits == [3.0]


def test_a_file_from_the_future_is_taken_all_the_same(root: Path, opened: Opened, time: Time) -> None:
    put(root / "a.md", at=NOW + 86_400)
    folder = opened()
    assert keys(folder) == ["a.md"]
    assert time.waits == [3.0]
    assert isinstance(folder.visit("a.md", None, root), Document)


def test_one_that_goes_meanwhile_is_gone(root: Path, opened: Opened, time: Time) -> None:
    path = put(root / "new.md", at=NOW)
    put(root / "old.md")
    time.meanwhile = path.unlink
    found = list(opened().listing(full=True))
    assert [one.key for one in found if isinstance(one, Item)] == ["old.md"]
    assert len(found) == 1


# --- visits ----------------------------------------------------------------------------------------------------


def test_a_visit_leaves_the_bytes_where_they_are(root: Path, opened: Opened, tmp_path: Path) -> None:
    path = put(root / "x/a b.md")
    found = opened().visit("x/a b.md", None, tmp_path)
    assert found == Document(None, "a b.md", file_uri(path), version=mark(path))


def test_a_visit_tells_what_is_unchanged(root: Path, opened: Opened, tmp_path: Path) -> None:
    path = put(root / "a.md")
    known = Known("a.md", file_uri(path), mark(path))
    assert opened().visit("a.md", known, tmp_path) == Unchanged(version=mark(path))
    back = Known("a.md", file_uri(path), mark(path), missing=True)
    assert isinstance(opened().visit("a.md", back, tmp_path), Document), "it was taken out of the index"
    put(path, "longer text")
    assert isinstance(opened().visit("a.md", known, tmp_path), Document)


@pytest.mark.parametrize("key", ["gone.md", "../outside.md", "a.md/b.md", "link.md", "b.bak"])
def test_what_is_no_file_of_the_folder_is_gone(root: Path, opened: Opened, tmp_path: Path, key: str) -> None:
    put(root / "a.md")
    put(root / "b.bak")
    put(tmp_path / "outside.md")
    (root / "link.md").symlink_to(root / "a.md")
    found = opened().visit(key, None, tmp_path)
    assert isinstance(found, Gone)
    assert found.at_once


def test_what_nobody_can_tell_is_tried_again(
    root: Path, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*arguments: Any, **options: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(folder_module, "look", look)
    with pytest.raises(RetryableError, match="Input/output error"):
        opened().visit("a.md", None, tmp_path)


# --- a folder that is not there --------------------------------------------------------------------------------


def test_without_the_folder_nothing_is_gone(root: Path, opened: Opened, tmp_path: Path) -> None:
    folder = opened()
    root.rmdir()
    for ask in (lambda: keys(folder), lambda: folder.visit("a.md", None, tmp_path)):
        with pytest.raises(RetryableError, match="is not there") as caught:
            ask()
        assert caught.value.code == "folder_absent"
    root.write_text("a file")
    with pytest.raises(RetryableError, match="is not there"):
        keys(opened())


def test_an_empty_mount_point_is_no_empty_folder(root: Path, opened: Opened, tmp_path: Path) -> None:
    path = put(root / "a.md")
    folder = opened()
    keys(folder)
    cursor = folder.cursor()
    assert cursor == {"device": root.stat().st_dev}
    path.unlink()
    assert keys(opened(cursor)) == [], "the same device: they were deleted"
    elsewhere = {"device": root.stat().st_dev + 1}
    for ask in (lambda: keys(opened(elsewhere)), lambda: opened(elsewhere).visit("a.md", None, tmp_path)):
        with pytest.raises(RetryableError, match="mount point") as caught:
            ask()
        assert caught.value.code == "folder_absent"
    assert opened(elsewhere).cursor() == elsewhere
    put(root / "b.md")
    assert keys(opened(elsewhere)) == ["b.md"], "a new disk with files is believed"


def test_a_disk_that_goes_during_a_run_deletes_nothing(
    root: Path, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "a.md")
    folder = opened()
    keys(folder)
    root.rename(tmp_path / "away")
    root.mkdir()
    with pytest.raises(RetryableError, match="another folder"):
        folder.visit("a.md", None, tmp_path)

    def scan_and_lose(*arguments: Any, **options: Any) -> Any:
        found = scan(*arguments, **options)
        shutil.rmtree(root)
        return found

    monkeypatch.setattr(folder_module, "scan", scan_and_lose)
    with pytest.raises(RetryableError, match="is not there"):
        keys(opened())


def test_settings_are_checked(tmp_path: Path) -> None:
    assert FolderConfig.model_validate({"type": "folder", "path": "~/x"}).path == Path.home() / "x"
    for fields in ({}, {"path": str(tmp_path), "ignored": []}):
        with pytest.raises(ValidationError):
            FolderConfig.model_validate({"type": "folder", **fields})
