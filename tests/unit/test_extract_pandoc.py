"""What pandoc leaves with, in our own words."""

from __future__ import annotations

import pypandoc
import pytest

from pipelines.errors import PermanentError
from pipelines.extract.office.pandoc import convert_text


def _leave(monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    def convert(*args: object, **options: object) -> str:
        raise RuntimeError(f'Pandoc died with exitcode "{code}" during conversion: {words}')

    monkeypatch.setattr(pypandoc, "convert_text", convert)


def test_a_heap_that_is_exhausted_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    _leave(monkeypatch, 251, "pandoc: out of memory")
    with pytest.raises(MemoryError):
        convert_text("x", "rtf", "html")


def test_a_file_it_cannot_parse_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    _leave(monkeypatch, 64, "could not parse")
    with pytest.raises(PermanentError) as caught:
        convert_text("x", "rtf", "html")
    assert caught.value.code == "corrupt"
    assert "could not parse" in caught.value.cause
