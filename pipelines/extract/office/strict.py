"""Strict Office Open XML, which the parsers do not know, in its transitional form, which they do."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_XML = (".xml", ".rels")


@contextmanager
def transitional(path: Path) -> Iterator[Path]:
    """The path itself, or for a file in the strict form a temporary copy with the usual namespaces.

    The two forms differ in what matters here only by their names (ISO/IEC 29500, part 4).
    """
    with zipfile.ZipFile(path) as archive:
        if "_rels/.rels" not in archive.namelist() or not _STRICT.search(archive.read("_rels/.rels")):
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            copy = Path(folder) / path.name
            with zipfile.ZipFile(copy, "w") as written:
                for member in archive.infolist():
                    content = archive.read(member)
                    if member.filename.endswith(_XML):
                        content = _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", content)
                    written.writestr(member.filename, content)
            yield copy
