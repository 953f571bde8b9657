"""Looking at the disk: what is listed, what is left out, and what only makes the listing incomplete."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from worker.watchers.fingerprint import FileStat, fingerprint, parse_fingerprint, unchanged
from worker.watchers.ignore import Ignore
from worker.watchers.listen import file_system_of
from worker.watchers.scan import look, missing_files, scan

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX file types")


def put(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_regular_files_at_any_depth_and_nothing_ignored(tmp_path: Path) -> None:
    kept = {put(tmp_path / "a.md"), put(tmp_path / "x/y/z.txt"), put(tmp_path / "x/Été à Paris.md")}
    put(tmp_path / ".git/config")
    put(tmp_path / "x/node_modules/p/readme.md")
    put(tmp_path / "x/~$z.docx")
    listing = scan(tmp_path, Ignore())
    assert set(listing.files) == kept
    assert listing.present
    assert not listing.unreadable
    status = (tmp_path / "a.md").stat()
    assert listing.files[tmp_path / "a.md"] == FileStat(4, status.st_mtime_ns, status.st_ino)


@posix_only
def test_symbolic_links_and_special_files_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    real = put(root / "real.md")
    put(outside / "secret.md")
    (root / "file-out.md").symlink_to(outside / "secret.md")
    (root / "dir-out").symlink_to(outside)
    (root / "file-in.md").symlink_to(real)
    (root / "loop").symlink_to(root)
    (root / "dangling.md").symlink_to(root / "nothing")
    os.mkfifo(root / "fifo.md")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(root)  # an address has room for some 100 bytes, wherever tests have their folders
        server.bind("socket.md")
    assert set(scan(root, Ignore()).files) == {real}
    for name in ("file-out.md", "dir-out/secret.md", "file-in.md", "loop/real.md", "dangling.md", "fifo.md"):
        assert look(root / name, root, Ignore()) is None
    assert look(real, root, Ignore()) is not None


@posix_only
def test_a_root_may_be_a_symbolic_link(tmp_path: Path) -> None:
    put(tmp_path / "real/a.md")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert set(scan(tmp_path / "link", Ignore()).files) == {tmp_path / "link/a.md"}
    assert look(tmp_path / "link/a.md", tmp_path / "link", Ignore()) is not None


@posix_only
def test_names_that_are_not_utf8_are_reported_and_skipped(tmp_path: Path) -> None:
    good = put(tmp_path / "good.md")
    bad_file, bad_directory = os.fsencode(tmp_path) + b"/caf\xe9.md", os.fsencode(tmp_path) + b"/d\xff"
    try:
        Path(os.fsdecode(bad_directory)).mkdir()
        for name in (bad_file, bad_directory + b"/inner.md"):
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    listing = scan(tmp_path, Ignore())
    assert set(listing.files) == {good}
    assert set(listing.misnamed) == {Path(os.fsdecode(bad_file)), Path(os.fsdecode(bad_directory))}
    assert not listing.unreadable
    assert look(Path(os.fsdecode(bad_file)), tmp_path, Ignore()) is None
    assert look(Path(os.fsdecode(bad_directory)) / "inner.md", tmp_path, Ignore()) is None


def test_a_missing_root_is_not_an_empty_one(tmp_path: Path) -> None:
    assert scan(tmp_path, Ignore()).present
    assert not scan(tmp_path / "nothing", Ignore()).present
    assert not scan(put(tmp_path / "file.md"), Ignore()).present


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_an_error_in_a_sub_directory_makes_the_listing_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kept = put(tmp_path / "a.md")
    put(tmp_path / "bad/b.md")
    real = os.scandir

    def failing(path: Any) -> Any:
        if Path(path).name == "bad":
            raise OSError(code, os.strerror(code), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", failing)
    listing = scan(tmp_path, Ignore())
    assert set(listing.files) == {kept}
    assert listing.unreadable == {tmp_path / "bad": os.strerror(code)}
    assert listing.present


def test_a_cancelled_scan_concludes_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a.md")
    assert set(scan(tmp_path, Ignore(), cancelled=lambda: True).unreadable) == {tmp_path}


def test_look_sees_what_scan_sees(tmp_path: Path) -> None:
    path = put(tmp_path / "x/a.md")
    put(tmp_path / "x/a.tmp")
    assert look(path, tmp_path, Ignore()) == scan(tmp_path, Ignore()).files[path]
    assert look(path, tmp_path, Ignore(), stable_inodes=False) == FileStat(4, path.stat().st_mtime_ns, 0)
    for other in (tmp_path, tmp_path / "x", tmp_path / "x/a.tmp", tmp_path / "b.md", path / "below"):
        assert look(other, tmp_path, Ignore()) is None


def test_look_raises_when_nobody_can_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "lstat", failing)
    with pytest.raises(PermissionError):
        look(tmp_path / "a.md", tmp_path, Ignore())


def test_missing_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    here, gone, deep = put(root / "here.md"), root / "gone.md", root / "x/gone.md"
    known = {here: "1-1-1", gone: "1-1-2", deep: "1-1-3", tmp_path / "elsewhere.md": "1-1-4"}
    assert missing_files(root, known, Ignore()) == [gone, deep]
    here.unlink()
    root.rmdir()
    assert missing_files(root, known, Ignore()) == [gone, here, deep]


def test_fingerprint_round_trip() -> None:
    stat = FileStat(12, 1_700_000_000_123_456_789, 42)
    assert fingerprint(stat) == "12-1700000000123456789-42"
    assert parse_fingerprint(fingerprint(stat)) == stat


@pytest.mark.parametrize("text", ["", "12", "1-2", "1-2-3-4", "a-b-c", "sha256:abc"])
def test_a_foreign_fingerprint_is_no_fingerprint(text: str) -> None:
    assert parse_fingerprint(text) is None
    assert not unchanged(text, FileStat(1, 2, 3))


@pytest.mark.parametrize(
    ("recorded", "stat", "same"),
    [
        ("1-2-3", FileStat(1, 2, 3), True),
        ("1-2-3", FileStat(9, 2, 3), False),
        ("1-2-3", FileStat(1, 9, 3), False),
        ("1-2-3", FileStat(1, 2, 9), False),
        ("1-2-3", FileStat(1, 2, 0), True),
        ("1-2-0", FileStat(1, 2, 3), True),
        ("1-9-0", FileStat(1, 2, 3), False),
    ],
)
def test_unchanged(recorded: str, stat: FileStat, same: bool) -> None:
    assert unchanged(recorded, stat) is same


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /srv/docs nfs4 rw 0 0
//nas/share /srv/my\\040share cifs rw 0 0
/dev/vdb /srv/docs/local xfs rw 0 0
/dev/fuse /srv/remote fuse.sshfs rw 0 0
/dev/vdc /srv/remote btrfs rw 0 0
host /srv/host 9p rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "events", "inodes"),
    [
        ("/srv/else", "ext4", True, True),
        ("/srv/docs", "nfs4", False, True),
        ("/srv/docs/deep/er", "nfs4", False, True),
        ("/srv/docs2", "ext4", True, True),
        ("/srv/docs/local/x", "xfs", True, True),
        ("/srv/my share/x", "cifs", False, False),
        ("/srv/remote", "btrfs", True, True),
        ("/srv/host", "9p", False, False),
    ],
)
@posix_only
def test_file_system_of(path: str, kind: str, events: bool, inodes: bool) -> None:
    found = file_system_of(Path(path), MOUNTS)
    assert (found.kind, found.gives_events, found.stable_inodes) == (kind, events, inodes)
