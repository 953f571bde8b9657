"""What is kept of the documents found inside one, and what is left out with a word about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.extract import attachments as module
from pipelines.extract.attachments import Attachments
from pipelines.types import Attachment


def test_bytes_are_kept_under_a_name_of_ours_and_sniffed(tmp_path: Path) -> None:
    inside = Attachments(tmp_path)
    inside.add("../../etc/price list.csv", b"sku,price\n8842-B,12.50\n")
    (found,) = inside.found
    assert (found.name, found.size, found.mime) == (".. etc price list.csv".strip(". "), 23, "text/csv")
    assert found.path is not None
    assert Path(found.path) == tmp_path / "0000.csv"
    assert Path(found.path).read_bytes().startswith(b"sku")


def test_without_a_folder_only_names_and_sizes_are_kept() -> None:
    inside = Attachments()
    inside.add("a.txt", b"four")
    assert inside.found == [Attachment("a.txt", 4)]


def test_equal_and_missing_names_are_told_apart() -> None:
    inside = Attachments()
    for name in ("a.txt", "a.txt", None, "", "a.txt"):
        inside.add(name, b"x")
    assert [one.name for one in inside.found] == ["a.txt", "a-2.txt", "attachment", "attachment-2", "a-3.txt"]


def test_one_that_would_be_too_large_as_a_document_does_not_cost_the_others() -> None:
    inside = Attachments(largest=10)
    inside.add("long.txt", b"x" * 11)
    inside.add("short.txt", b"x" * 10)
    assert [one.name for one in inside.found] == ["short.txt"]
    assert inside.warnings == ["the attachment long.txt was left out: 11 bytes, over GRISTMILL_MAX_BYTES"]


def test_empty_ones_and_too_many_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ATTACHMENTS", 1)
    inside = Attachments()
    for name, content in (("empty", b""), ("first", b"1"), ("second", b"2")):
        inside.add(name, content)
    assert [one.name for one in inside.found] == ["first"]
    assert len(inside.warnings) == 2
