"""The checks a file must pass before anything looks inside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipelines.errors import PermanentError
from pipelines.extract.archive import check_directory


def check_file(path: Path, max_bytes: int) -> int:
    """Make sure that `path` is a regular, readable, non-empty file of acceptable size.

    Returns:
        Its size in bytes.

    Raises:
        PermanentError: `vanished`, `unreadable`, `not_a_file`, `empty_file`, `too_large`, or `bomb` where the
            table of contents of an archive is one by itself.
    """
    try:
        # Not blocking: a FIFO without a writer would otherwise hold us for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PermanentError(
            "vanished",
            "the file is no longer there",
            "nothing to do if it was removed on purpose; else put it back",
        ) from error
    except PermissionError as error:
        if path.is_dir():
            raise _not_a_file("a directory") from error
        raise PermanentError(
            "unreadable",
            "the file may not be read by the user Gristmill runs as",
            "allow it with chmod or chown, then `gristmill retry`",
        ) from error
    except OSError as error:
        if path.is_socket():
            raise _not_a_file("a socket") from error
        raise _cannot_read(error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_file("a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or device")
        if status.st_size == 0:
            raise PermanentError("empty_file", "the file is empty (zero bytes)", "write it again in full")
        if status.st_size > max_bytes:
            raise PermanentError(
                "too_large",
                f"the file has {status.st_size:,} bytes, more than the {max_bytes:,} allowed",
                "raise GRISTMILL_MAX_BYTES or split the file",
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            check_directory(file)
    except OSError as error:
        raise _cannot_read(error) from error
    finally:
        os.close(descriptor)
    return status.st_size


def _cannot_read(error: OSError) -> PermanentError:
    return PermanentError(
        "unreadable", f"the file cannot be opened: {error.strerror}", "check the disk or share it lies on"
    )


def _not_a_file(what: str) -> PermanentError:
    return PermanentError("not_a_file", f"the path is {what}, not a file", "give the path of a file")
