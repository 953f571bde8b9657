"""Looks into ZIP-based documents before a parser does: damaged, encrypted, or a bomb."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from pipelines.errors import PermanentError

MAX_MEMBERS = 20_000
MAX_BYTES = 1024 * 2**20
FREE_BYTES = 64 * 2**20
MAX_RATIO = 100
_STEP = 2**20


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


def _bomb(what: str) -> PermanentError:
    return PermanentError(
        "bomb",
        f"the file unpacks to {what}, which no honest document does",
        "split it if it is honest after all",
    )
