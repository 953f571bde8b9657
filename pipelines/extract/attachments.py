"""Documents inside a document: the files of an e-mail, a PDF, an Office file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pipelines import sniff
from pipelines.types import Attachment

MAX_ATTACHMENTS = 500
MAX_BYTES = 500 * 2**20  # of all attachments of one document together
MAX_DEPTH = 3  # of documents inside documents inside documents
_LONGEST_NAME = 120
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")


@dataclass(slots=True)
class Attachments:
    """Gathers the documents found inside one.

    Attributes:
        folder: where their bytes are written; None: only their names and sizes are kept.
        largest: most bytes of one, which would be too large as a document as well.
        warnings: what was left out, and why.
    """

    folder: Path | None = None
    largest: int = MAX_BYTES
    found: list[Attachment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _bytes: int = 0

    def add(self, name: str | None, content: bytes) -> None:
        """Take one in. Its name is made safe and unique; one that is empty, or over the limits, is left out."""
        clean = self._unique(name)
        if not content:
            self.warnings.append(f"the attachment {clean} is empty")
            return
        if (size := len(content)) > self.largest:
            self.warnings.append(f"the attachment {clean} was left out: {size:,} bytes, over GRISTMILL_MAX_BYTES")
            return
        if len(self.found) >= MAX_ATTACHMENTS or self._bytes + len(content) > MAX_BYTES:
            self.warnings.append(f"the attachment {clean} was left out: too many, or too large together")
            return
        self._bytes += len(content)
        path = None
        if self.folder is not None:
            path = self.folder / f"{len(self.found):04}{PurePosixPath(clean).suffix[:12]}"
            path.write_bytes(content)
        mime = sniff.sniff(path, clean) if path else None
        self.found.append(Attachment(clean, len(content), mime, str(path) if path else None))

    def _unique(self, name: str | None) -> str:
        wanted = " ".join(_UNSAFE.sub(" ", name or "").split()).strip(". ") or "attachment"
        stem, suffix = wanted[: -len(end)] if (end := PurePosixPath(wanted).suffix) else wanted, end
        stem, suffix = stem[: _LONGEST_NAME - len(suffix)] or "attachment", suffix[:12]
        taken = {one.name for one in self.found}
        unique, number = stem + suffix, 2
        while unique in taken:
            unique, number = f"{stem}-{number}{suffix}", number + 1
        return unique
