from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from pipelines.errors import PermanentError
from pipelines.extract import archive
from pipelines.extract.archive import check_archive


def _code(path: Path) -> str:
    with pytest.raises(PermanentError) as caught:
        check_archive(path)
    return caught.value.code


def test_an_honest_archive_passes(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("word/document.xml", "<w/>" * 1000)
    check_archive(path)


def test_a_bomb_is_seen_by_its_real_bytes(tmp_path: Path) -> None:
    path = tmp_path / "bomb.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made, made.open("word/document.xml", "w") as member:
        for _ in range(archive.FREE_BYTES // 2**20 + 2):
            member.write(b"\0" * 2**20)
    assert path.stat().st_size < 2**20
    assert _code(path) == "bomb"


def test_too_many_members_are_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    path = tmp_path / "many.xlsx"
    with zipfile.ZipFile(path, "w") as made:
        for number in range(4):
            made.writestr(f"xl/{number}.xml", "")
    assert _code(path) == "bomb"


def test_damage_and_encryption_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("word/document.xml", "content " * 50)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"content content", b"c0ntent content", 1))
    assert _code(path) == "corrupt"
    path.write_bytes(data[:40])
    assert _code(path) == "corrupt"
    local, central = data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8
    locked = bytearray(data)
    locked[local] |= 1
    locked[central] |= 1
    path.write_bytes(bytes(locked))
    assert _code(path) == "encrypted"
