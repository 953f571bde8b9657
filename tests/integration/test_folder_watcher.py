"""The folder watcher on a real folder with real events, and a ledger that lives in memory."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError, PermanentError, UnavailableError
from worker.settings import Settings
from worker.watchers import watched_root
from worker.watchers.fingerprint import FileStat, fingerprint
from worker.watchers.folder import FolderWatcher
from worker.watchers.watched_root import check_folders

pytestmark = pytest.mark.skipif(os.name != "posix", reason="uses POSIX renames and symbolic links")

STABILITY = 0.3


class MemorySink:
    """A ledger in memory that notes every call; `away` makes it refuse."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        self.calls: list[tuple[str, ...]] = []
        self.away = False
        self.refused = 0
        self.poison: Path | None = None

    def _check(self, path: Path | None = None) -> None:
        if self.away:
            self.refused += 1
            raise UnavailableError("database_away", "the database is away")
        if path is not None and path == self.poison:
            raise PermanentError("refused", "this file is refused")

    def record_file(self, path: Path, fingerprint: str) -> None:
        self._check(path)
        self.calls.append(("record", path.name))
        self.files[path] = fingerprint

    def delete_file(self, path: Path) -> None:
        self._check(path)
        self.calls.append(("delete", path.name))
        self.files.pop(path, None)

    def rename_file(self, old: Path, new: Path, fingerprint: str) -> None:
        self._check(new)
        self.calls.append(("rename", old.name, new.name))
        del self.files[old]
        self.files[new] = fingerprint

    def known_files(self, root: Path) -> Mapping[Path, str]:
        self._check()
        return {path: mark for path, mark in self.files.items() if path.is_relative_to(root)}


def until(true: Callable[[], object], what: str, seconds: float = 45.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def mark(path: Path) -> str:
    return fingerprint(FileStat.of(path.stat()))


def mirrors(sink: MemorySink, *paths: Path) -> Callable[[], bool]:
    return lambda: sink.files == {path: mark(path) for path in paths if path.exists()} and len(sink.files) == len(paths)


def make_settings(root: Path, **more: object) -> Settings:
    values: dict[str, object] = {
        "home": root.parent / "home",
        "watch": (root,),
        "stability_seconds": STABILITY,
        "rescan_seconds": 300.0,
    }
    return Settings.model_validate(values | more)


@contextmanager
def watching(settings: Settings, sink: MemorySink) -> Iterator[FolderWatcher]:
    watcher = FolderWatcher(settings, sink)
    failure: list[BaseException] = []

    def run() -> None:
        try:
            watcher.run()
        except BaseException as error:
            failure.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield watcher
    finally:
        watcher.stop()
        thread.join(30)
    assert not thread.is_alive()
    assert not failure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "drop").mkdir()
    return tmp_path / "drop"


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture(params=["events", "polling"])
def settings(request: pytest.FixtureRequest, root: Path) -> Settings:
    return make_settings(root, poll_seconds=0.1 if request.param == "polling" else 0.0)


def ready(sink: MemorySink, root: Path) -> None:
    """Wait until the watcher has taken in what is there, so that what follows is heard of, not listed."""
    first = root / "first.md"
    first.write_text("first")
    until(lambda: first in sink.files, "the first file is recorded")
    sink.calls.clear()


def test_create_edit_delete(settings: Settings, root: Path, sink: MemorySink) -> None:
    with watching(settings, sink):
        ready(sink, root)
        path = root / "sub/deeper/a.md"
        path.parent.mkdir(parents=True)
        path.write_text("one")
        until(mirrors(sink, root / "first.md", path), "created")
        path.write_text("one and two")
        until(mirrors(sink, root / "first.md", path), "edited")
        path.unlink()
        until(mirrors(sink, root / "first.md"), "deleted")
    assert sink.calls == [("record", "a.md"), ("record", "a.md"), ("delete", "a.md")]


def test_rename_within_and_between_directories(settings: Settings, root: Path, sink: MemorySink) -> None:
    with watching(settings, sink):
        ready(sink, root)
        (root / "sub").mkdir()
        first, second, third = root / "first.md", root / "second.md", root / "sub/third.md"
        first.rename(second)
        until(mirrors(sink, second), "renamed")
        second.rename(third)
        until(mirrors(sink, third), "moved to another directory")
    assert sink.calls == [("rename", "first.md", "second.md"), ("rename", "second.md", "third.md")]


def test_a_directory_is_renamed(settings: Settings, root: Path, sink: MemorySink) -> None:
    (root / "old/deep").mkdir(parents=True)
    names = [f"deep/{number}.md" for number in range(15)]
    for name in names:
        (root / "old" / name).write_text(name)
    with watching(settings, sink):
        ready(sink, root)
        (root / "old").rename(root / "new")
        until(mirrors(sink, root / "first.md", *(root / "new" / name for name in names)), "renamed")
        # What is renamed is still watched.
        late = root / "new/deep/late.md"
        late.write_text("late")
        until(lambda: late in sink.files, "a new file in the renamed directory")
    assert [call[0] for call in sink.calls] == ["rename"] * 15 + ["record"]


def test_a_directory_moved_in_is_listened_to_and_moved_out_is_deleted(
    settings: Settings, root: Path, sink: MemorySink, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep/a.md").write_text("a")
    with watching(settings, sink):
        ready(sink, root)
        outside.rename(root / "inside")
        inner = root / "inside/deep/a.md"
        until(mirrors(sink, root / "first.md", inner), "moved in")
        inner.write_text("edited")
        until(mirrors(sink, root / "first.md", inner), "edited after the move")
        (root / "inside").rename(outside)
        until(mirrors(sink, root / "first.md"), "moved out")


def test_a_slow_writer_is_recorded_once(settings: Settings, root: Path, sink: MemorySink) -> None:
    path = root / "slow.md"
    # Written for longer than that, with pauses that are far shorter.
    settings = settings.model_copy(update={"stability_seconds": 1.0})
    stretched = 0  # to as long as that, by a machine that stood still
    with watching(settings, sink):
        ready(sink, root)
        with path.open("w") as file:
            since = time.monotonic()
            for piece in range(20):
                began = time.monotonic()
                file.write(f"piece {piece}\n")
                file.flush()
                stretched += time.monotonic() - since >= settings.stability_seconds
                since = began
                time.sleep(0.06)
                early = len(sink.calls)
                assert early <= stretched + (time.monotonic() - since >= settings.stability_seconds)
        until(mirrors(sink, root / "first.md", path), "recorded when quiet")
    assert set(sink.calls) == {("record", "slow.md")}
    assert len(sink.calls) <= 1 + stretched


def test_an_editor_that_saves_by_renaming_makes_an_edit(settings: Settings, root: Path, sink: MemorySink) -> None:
    path = root / "first.md"
    with watching(settings, sink):
        ready(sink, root)
        for temporary in (root / "first.md.tmp", root / "4913"):
            temporary.write_text(f"saved by way of {temporary.name}")
            temporary.rename(path)
            until(mirrors(sink, path), "saved")
        path.rename(root / "first.md~")
        path.write_text("saved with a backup")
        until(mirrors(sink, path), "saved with a backup")
    assert sink.calls == [("record", "first.md")] * 3


def test_what_is_not_ours_is_ignored(settings: Settings, root: Path, sink: MemorySink, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    with watching(settings, sink):
        ready(sink, root)
        (root / "link.md").symlink_to(outside / "secret.md")
        (root / "linked").symlink_to(outside)
        (root / "loop").symlink_to(root)
        (root / ".hidden").write_text("hidden")
        os.mkfifo(root / "fifo.md")
        (outside / "secret.md").write_text("more secret")
        (outside / "late.md").write_text("late")
        last = root / "last.md"
        last.write_text("last")
        until(lambda: last in sink.files, "the last file is recorded")
    assert set(sink.files) == {root / "first.md", last}


def test_what_happened_while_nobody_watched(settings: Settings, root: Path, sink: MemorySink) -> None:
    kept, edited, gone, moved = (root / f"{name}.md" for name in ("kept", "edited", "gone", "moved"))
    for path in (kept, edited, gone, moved):
        path.write_text(path.name)
        sink.files[path] = mark(path)
    edited.write_text("edited")
    gone.unlink()
    (root / "sub").mkdir()
    moved.rename(root / "sub/there.md")
    new = root / "new.md"
    new.write_text("new")
    with watching(settings, sink):
        until(mirrors(sink, kept, edited, root / "sub/there.md", new), "caught up")
    assert sorted(sink.calls) == [
        ("delete", "gone.md"),
        ("record", "edited.md"),
        ("record", "new.md"),
        ("rename", "moved.md", "there.md"),
    ]


def test_a_database_that_is_away_loses_nothing(root: Path, sink: MemorySink) -> None:
    with watching(make_settings(root), sink):
        ready(sink, root)
        sink.away = True
        path = root / "a.md"
        path.write_text("a")
        (root / "first.md").rename(root / "second.md")
        until(lambda: sink.refused >= 2, "two attempts")
        sink.away = False
        until(mirrors(sink, path, root / "second.md"), "delivered late")


def test_a_file_that_is_refused_does_not_hold_up_others(root: Path, sink: MemorySink) -> None:
    sink.poison = root / "a-poison.md"
    with watching(make_settings(root), sink):
        ready(sink, root)
        sink.poison.write_text("poison")
        other = root / "b.md"
        other.write_text("b")
        until(lambda: other in sink.files, "the other file")
    assert sink.poison not in sink.files


def test_a_root_that_goes_and_comes_back(
    settings: Settings, root: Path, sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gristmill.watcher")
    with watching(settings, sink):
        ready(sink, root)
        away = root.with_name("away")
        root.rename(away)
        until(lambda: "missing or not mounted" in caplog.text, "the pause is said")
        away.rename(root)
        late = root / "late.md"
        late.write_text("late")
        until(lambda: late in sink.files, "watched again")
        until(lambda: "goes on" in caplog.text, "the end of the pause is said")
    assert sink.calls == [("record", "late.md")]


def test_a_root_that_does_not_exist_yet_and_one_that_does(root: Path, sink: MemorySink, tmp_path: Path) -> None:
    later = tmp_path / "later"
    with watching(make_settings(root, watch=(root, later)), sink):
        ready(sink, root)
        later.mkdir()
        path = later / "a.md"
        path.write_text("a")
        until(lambda: path in sink.files, "the root that came later")


@pytest.mark.parametrize("whole", [True, False], ids=["root-and-all", "only-the-files"])
def test_removing_everything_is_not_believed(
    settings: Settings, root: Path, sink: MemorySink, caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    files = [root / f"tree/{number}.md" for number in range(20)]
    (root / "tree").mkdir()
    for path in files:
        path.write_text(path.name)
    with watching(settings, sink):
        ready(sink, root)
        until(lambda: len(sink.files) == 21, "all recorded")
        shutil.rmtree(root if whole else root / "tree")
        until(lambda: "is paused" in caplog.text, "the pause is said")
    assert len(sink.files) == 21
    assert ("gristmill delete --missing" in caplog.text) is not whole


def test_without_inotify_it_polls_and_says_why(
    root: Path, sink: MemorySink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(watched_root, "Listener", refuse)
    monkeypatch.setattr(watched_root, "POLL_SECONDS", 0.1)
    with watching(make_settings(root), sink):
        ready(sink, root)
    assert "fs.inotify.max_user_watches" in caplog.text


@pytest.mark.parametrize(
    ("watch", "code"),
    [
        ((), "no_folder"),
        (("a", "a"), "overlapping_folders"),
        (("a", "a/b"), "overlapping_folders"),
        (("a/b/c", "a"), "overlapping_folders"),
        (("a", "link"), "overlapping_folders"),
        (("home",), "home_is_watched"),
        ((".",), "home_is_watched"),
    ],
)
def test_folders_that_cannot_be_watched_together(tmp_path: Path, watch: tuple[str, ...], code: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigurationError) as caught:
        check_folders(make_settings(tmp_path / "x", watch=tuple(tmp_path / name for name in watch)))
    assert caught.value.code == code


def test_a_folder_inside_the_home_may_be_watched(tmp_path: Path) -> None:
    check_folders(make_settings(tmp_path / "x", watch=(tmp_path / "home/inbox", tmp_path / "ab", tmp_path / "a")))
