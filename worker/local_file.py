"""A file of a folder that others may write to, opened so that it is the file that was listed, and kept so.

Between the scan of a folder and the reading of a file, whoever may write there can put a symbolic link in its place,
to a file that only we may read (CWE-367, CWE-59). So no link is followed beneath a watched root, and what is parsed
is a copy of our own that nobody can exchange.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import PermanentError, RetryableError
from pipelines.extract.gate import check_file

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_AS_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW
_AS_FILE = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_LONGEST_SUFFIX = 16


@contextmanager
def private_copy(path: Path, roots: Sequence[Path], max_bytes: int) -> Iterator[Path]:
    """The bytes of a file as they are now, in a file of ours, for the time of the block.

    Args:
        path: absolute.
        roots: the watched folders; they themselves may be symbolic links, what is beneath them may not.

    Raises:
        PermanentError: as `check_file`, and `not_a_file` where it is, or is reached by, a symbolic link.
        RetryableError: it cannot be copied now.
    """
    check_file(path, max_bytes)
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        copy = Path(folder) / f"document{path.suffix[:_LONGEST_SUFFIX]}"
        with os.fdopen(_open(path, roots), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
                raise _exchanged()
            try:
                with copy.open("xb") as made:
                    shutil.copyfileobj(file, made)
            except OSError as error:
                raise RetryableError(
                    "unreadable",
                    f"the file cannot be copied to be read: {error.strerror or error}",
                    "check the disk it lies on, and the space for temporary files (TMPDIR)",
                ) from error
        yield copy


def _open(path: Path, roots: Sequence[Path]) -> int:
    if os.open not in os.supports_dir_fd:
        return os.open(path, _AS_FILE)
    root = next((one for one in roots if path.is_relative_to(one) and path != one), path.parent)
    try:
        at = os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            *directories, name = path.relative_to(root).parts
            for part in directories:
                beneath = os.open(part, os.O_RDONLY | _AS_DIRECTORY, dir_fd=at)
                os.close(at)
                at = beneath
            return os.open(name, _AS_FILE, dir_fd=at)
        finally:
            os.close(at)
    except FileNotFoundError as error:
        raise PermanentError(
            "vanished", "the file is no longer there", "put it back, if that was no purpose"
        ) from error
    except OSError as error:
        raise _exchanged() from error


def _exchanged() -> PermanentError:
    return PermanentError(
        "not_a_file",
        "the path is, or leads through, a symbolic link, or was exchanged while it was opened",
        "put the file itself there, or give the path that the link leads to",
    )
