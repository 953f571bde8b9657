"""The door to pandoc: in its sandbox, where it reads no file but the one given and opens no connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelines.errors import PermanentError
from pipelines.extract.archive import entity_bomb
from pipelines.extract.isolation.lifeline import group_dies_with_parent

_HEAP_EXHAUSTED = 'exitcode "251"'  # what programs of GHC leave with, as pypandoc words it


def convert_text(text: str, source: str, target: str) -> str:
    """A text in one of pandoc's formats as text in another.

    Raises:
        PermanentError: `corrupt`, where pandoc cannot read it; `bomb`, where that is for its XML entities.
        MemoryError: pandoc ran out of it.
    """
    import pypandoc

    return _checked(lambda: pypandoc.convert_text(text, target, source, extra_args=["--wrap=none"], sandbox=True))


def convert_file(path: Path, source: str, target: str, made: Path) -> None:
    """Write a file as `made`, in another of pandoc's formats.

    Raises:
        PermanentError, MemoryError: as `convert_text`.
    """
    import pypandoc

    _checked(lambda: pypandoc.convert_file(str(path), target, source, outputfile=str(made), sandbox=True))


def _checked(convert: Callable[[], str]) -> str:
    try:
        with group_dies_with_parent():
            return convert()
    except RuntimeError as error:
        if bomb := entity_bomb(error):
            raise bomb from error
        if _HEAP_EXHAUSTED in str(error):
            raise MemoryError from error
        raise PermanentError(
            "corrupt",
            f"the file is damaged: {' '.join(str(error).split())[:200]}",
            "open it in its own program and save it again",
        ) from error
