"""The spool, on a disk and in an object store: bytes kept under their hash, and thrown away when nobody needs them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.errors import PermanentError
from tests.fakes.object_server import ObjectServer, serving_objects
from worker.ledger import Ledger
from worker.remote_spool import close_remote_spools, open_remote_spool
from worker.spool import CACHE, KEEP_SECONDS, Spool


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with serving_objects() as server:
        yield server


@pytest.fixture(params=["local", "s3", "other"])
def spool(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    if request.param == "local":
        yield Spool(tmp_path / "spool", max_bytes=100)
        return
    url, endpoint = f"memory://{tmp_path.name}", None
    if request.param == "s3":
        server: ObjectServer = request.getfixturevalue("server")
        server.admit(monkeypatch)
        url, endpoint = f"s3://{server.bucket()}/spool", server.url
    remote = open_remote_spool(url, endpoint, tmp_path / "spool" / CACHE)
    yield Spool(tmp_path / "spool", max_bytes=100, remote=remote)
    close_remote_spools()


def test_the_same_bytes_are_kept_once(spool: Spool, tmp_path: Path) -> None:
    first = spool.put(b"content", "résumé.PDF")
    second = spool.put(b"content", "../../x.pdf")
    assert first == second
    assert first.name == hashlib.sha256(b"content").hexdigest() + ".pdf"
    assert spool.path(first.name).read_bytes() == b"content"
    assert [p.name for p in (tmp_path / "spool").rglob("*") if p.is_file()] == [first.name]
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700


def test_a_file_is_copied_under_its_hash(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "a.part").write_bytes(b"content")
    assert spool.copy(tmp_path / "a.part", "a.pdf") == spool.put(b"content", "b.pdf")
    assert (tmp_path / "a.part").exists()


def test_too_much_leaves_nothing(spool: Spool, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="more than the 100 bytes"), spool.open("a.txt") as incoming:
        for _ in range(11):
            incoming.write(b"x" * 10)
    assert [p for p in (tmp_path / "spool").rglob("*") if p.is_file()] == []


def test_broken_off_leaves_nothing(spool: Spool, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError), spool.open("a.txt") as incoming:
        incoming.write(b"half")
        raise ConnectionError
    assert [p for p in (tmp_path / "spool").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a" * 64 + "/../x", "A" * 64, "a" * 63, "a" * 64 + ".p/df"])
def test_names_are_never_paths(spool: Spool, name: str) -> None:
    with pytest.raises(PermanentError):
        spool.path(name)


def test_what_no_document_needs_is_removed_after_a_while(spool: Spool, database: Connection[Any]) -> None:
    ledger = Ledger(database)
    kept, replaced, orphan = (spool.put(content, "a.txt") for content in (b"kept", b"old", b"orphan"))
    ledger.record("upload:1", kind="upload", location=kept.name)
    ledger.record("upload:2", kind="upload", location=replaced.name)
    ledger.record("upload:2", kind="upload", location=kept.name, fingerprint="new")
    assert spool.sweep(database) == 0, "too young: their rows may be about to be written"
    assert spool.sweep(database, now=time.time() + KEEP_SECONDS + 1) == 2
    assert spool.path(kept.name).exists()
    assert not spool.path(orphan.name).exists()
    ledger.delete("upload:1")
    ledger.delete("upload:2")
    assert spool.sweep(database, now=time.time() + KEEP_SECONDS + 1) == 1
