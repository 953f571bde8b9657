"""Where decisions go: the part of the ledger that a folder watcher needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Sink(Protocol):
    """The ledger as the watcher sees it.

    Every method is idempotent: a call that was cut off is made again. A call raises
    `pipelines.errors.PermanentError` when this file can never be taken (it is logged and dropped); any other
    exception means "not now", and the call is repeated with back-off, in order.
    """

    def record_file(self, path: Path, fingerprint: str) -> None:
        """Note that the file is new or has changed, and announce it."""

    def delete_file(self, path: Path) -> None:
        """Note that the file is gone. A file that is not known is no error."""

    def rename_file(self, old: Path, new: Path, fingerprint: str) -> None:
        """Note that the document recorded for `old` is at `new` now, keeping its chunks and vectors.

        `new` is never a live source at that moment, but it may be one that was deleted earlier. Where `old`
        is not known (any more), this is `record_file(new, fingerprint)`.
        """

    def known_files(self, root: Path) -> Mapping[Path, str]:
        """The live sources beneath the root, each with the fingerprint last recorded."""
