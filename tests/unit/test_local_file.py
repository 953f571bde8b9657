"""Files of folders that others write to: no link is followed, and nobody exchanges what is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.errors import PermanentError
from worker.local_file import private_copy


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "drop" / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("canary")
    (tmp_path / "drop" / "inner" / "a.md").write_text("ours")
    return tmp_path / "drop"


def test_a_file_is_read_as_it_was_when_it_was_opened(root: Path) -> None:
    file = root / "inner" / "a.md"
    with private_copy(file, [root], 100) as copy:
        file.unlink()
        file.symlink_to(root.parent / "outside" / "a.md")
        assert (copy.read_text(), copy.suffix, copy.parent.stat().st_mode & 0o777) == ("ours", ".md", 0o700)
    assert not copy.exists()


def test_a_file_exchanged_for_a_link_is_not_read(root: Path) -> None:
    file = root / "inner" / "a.md"
    file.unlink()
    file.symlink_to(root.parent / "outside" / "a.md")
    for roots in ([root], []):
        with pytest.raises(PermanentError, match="symbolic link") as told, private_copy(file, roots, 100):
            raise AssertionError("it was read")
        assert told.value.code == "not_a_file"


def test_nor_is_one_in_a_folder_that_was_exchanged(root: Path) -> None:
    (root / "inner").rename(root / "other")
    (root / "inner").symlink_to(root.parent / "outside")
    with pytest.raises(PermanentError, match="symbolic link"), private_copy(root / "inner" / "a.md", [root], 100):
        raise AssertionError("it was read")


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    with private_copy(link / "inner" / "a.md", [link], 100) as copy:
        assert copy.read_text() == "ours"


def test_a_pipe_does_not_hold_us(root: Path) -> None:
    os.mkfifo(root / "pipe.md")
    with pytest.raises(PermanentError, match="a pipe or device"), private_copy(root / "pipe.md", [root], 100):
        raise AssertionError("it was read")
