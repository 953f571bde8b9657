"""Files embedded in Office documents, out of their OLE wrappers."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from pathlib import Path, PurePosixPath

from pipelines import sniff
from pipelines.extract.attachments import Attachments
from pipelines.extract.office.relations import related

_MEMBER = re.compile(r"^(?:(?:word|ppt|xl)/embeddings/[^/]+|Object \d+)$")
_KINDS = frozenset({"aFChunk", "oleObject", "package"})
_OFFICE = frozenset({sniff.DOC, sniff.XLS, sniff.PPT, sniff.MSG})
_STREAMS = ("Package", "CONTENTS", "EmbeddedOdf")
_NATIVE = "\x01Ole10Native"


def take_embedded(path: Path, attachments: Attachments) -> None:
    """Add every embedded file of an Office document (Office Open XML or OpenDocument) to its attachments.

    So are chunks of another format (`altChunk`), which Word would merge into the text when it opens the document.

    Objects of programs whose files nobody here reads (drawings, equations of old) are left out.
    """
    placed = set(related(path, _KINDS))
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name in placed or _MEMBER.match(name):
                unwrapped = unwrap(archive.read(name), PurePosixPath(name).name)
                if unwrapped is not None:
                    attachments.add(*unwrapped)


def unwrap(content: bytes, name: str) -> tuple[str, bytes] | None:
    """Name and bytes of the file in an embedded object, None where it holds none.

    Args:
        name: of the object; it stays the file's name unless the wrapper knows a better one.
    """
    if not content.startswith(sniff.OLE_MAGIC):
        return _named(name, content), content
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(content)) as storage:
            if storage.exists(_NATIVE):
                return read_native(storage.openstream(_NATIVE).read())
            for stream in _STREAMS:
                if storage.exists(stream):
                    inner = storage.openstream(stream).read()
                    return _named(name, inner), inner
    except (OSError, ValueError, IndexError):
        return None
    return (_named(name, content), content) if sniff.sniff_content(content, name) in _OFFICE else None


def read_native(data: bytes) -> tuple[str, bytes] | None:
    """Name and bytes of the file in an `Ole10Native` stream ([MS-OLEDS] 2.3.6 and the packager's habit)."""
    try:
        label, rest = data[6:].split(b"\0", 1)
        _, rest = rest.split(b"\0", 1)
        (length,) = struct.unpack_from("<I", rest, 4)
        (size,) = struct.unpack_from("<I", rest, 8 + length)
    except (ValueError, struct.error):
        return None
    content = rest[12 + length : 12 + length + size]
    return (re.split(r"[\\/]", label.decode("cp1252", "replace"))[-1], content) if content else None


def _named(name: str, content: bytes) -> str:
    """The name, with a suffix that tells the kind where its own does not."""
    given = PurePosixPath(name)
    if given.suffix and given.suffix != ".bin":
        return name
    return given.stem + sniff.SUFFIXES.get(sniff.sniff_content(content, ""), ".bin")
