"""Looks into ZIP-based documents before a parser does: damaged, encrypted, or a bomb."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import PermanentError

MAX_MEMBERS = 20_000
MAX_BYTES = 1024 * 2**20
FREE_BYTES = 64 * 2**20
MAX_RATIO = 100
MAX_DIRECTORY = 4 * 2**20  # bytes of the table of contents; 20,000 members have about 2 MiB of it
_STEP = 2**20
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_END, _END_64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
# As libxml2, expat, defusedxml and pandoc say it.
_ENTITIES = re.compile(r"amplification|entity reference loop|EntitiesForbidden|UnresolvedEntity", re.IGNORECASE)
_LONGEST_END = 22 + 65535 + 20 + 56


def check_directory(file: BinaryIO) -> None:
    """Refuse an archive by the size of its table of contents alone, which `zipfile` would read and unfold whole.

    Raises:
        PermanentError: `bomb`. What is no ZIP archive, or one that is cut short, passes.
    """
    file.seek(0)
    if file.read(4) not in _MAGIC:
        return
    size = file.seek(0, 2)
    file.seek(max(0, size - _LONGEST_END))
    tail = file.read()
    # As `zipfile` does: the very end first, then the last mark before a comment.
    bare = tail[-22:-18] == _END and tail.endswith(b"\0\0")
    end = len(tail) - 22 if bare else tail.rfind(_END)
    if end < 0 or len(tail) < end + 22:
        return
    (directory,) = struct.unpack_from("<L", tail, end + 12)
    if tail[max(0, end - 20) : end].startswith(_LOCATOR):
        # Where `zipfile` looks for it: right before its locator.
        record = end - 76
        if record >= 0 and tail.startswith(_END_64, record):
            (directory,) = struct.unpack_from("<Q", tail, record + 40)
    if directory > MAX_DIRECTORY:
        raise _bomb(f"members whose names alone take {directory:,} bytes")


def check_archive(path: Path) -> None:
    """Unpack every member to nowhere and count: sizes that an archive states about itself prove nothing.

    Raises:
        PermanentError: `corrupt`; `encrypted`; `bomb` where the content has more than `MAX_MEMBERS` members,
        `MAX_BYTES`
            bytes, or `FREE_BYTES` and `MAX_RATIO` times the size of the file.
    """
    packed = path.stat().st_size
    limit = min(MAX_BYTES, max(FREE_BYTES, packed * MAX_RATIO))
    unpacked = 0
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise _bomb(f"{len(members):,} members")
            for member in members:
                if member.flag_bits & 0x1:
                    raise PermanentError(
                        "encrypted", "the file is protected by a password", "save it without a password"
                    )
                with archive.open(member) as stream:
                    while step := stream.read(_STEP):
                        unpacked += len(step)
                        if unpacked > limit:
                            raise _bomb(f"more than {limit // 2**20:,} MiB from {packed:,} bytes")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise PermanentError(
            "corrupt",
            f"the file is damaged or cut short ({error})",
            "copy it again in full, or open it in its own program and save it again",
        ) from error


def entity_bomb(error: BaseException) -> PermanentError | None:
    """What to raise where an XML parser stopped at entities; None where it stopped at something else.

    Args:
        error: what the parser raised, or an error that it is the cause of.
    """
    if not any(_ENTITIES.search(str(one)) for one in chain_of(error)):
        return None
    return entities_refused()


def entities_refused() -> PermanentError:
    """The error of a document that declares or uses entities of its own."""
    return PermanentError(
        "bomb",
        "the file holds XML entities, which may unfold to any size and which no honest document of its kind has",
        "open it in its own program and save it again, if you trust who made it",
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _bomb(what: str) -> PermanentError:
    return PermanentError(
        "bomb",
        f"the file unpacks to {what}, which no honest document does",
        "split it if it is honest after all",
    )
