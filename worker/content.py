"""Where the bytes of a claimed document are: a file of this machine, the spool, or an address to fetch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import PermanentError
from worker.ledger import Claim
from worker.local_file import private_copy
from worker.page_ranges import Parked
from worker.places import file_name, local_path
from worker.remote_spool import open_remote_spool
from worker.settings import Settings
from worker.spool import CACHE, Spool


@dataclass(frozen=True, slots=True)
class Content:
    """A document on this machine's disk, for the time of one ingest.

    Attributes:
        name: what it is called, with the suffix that hints at its format.
        place: where it is, for the header of code; the last parts of its path.
    """

    path: Path
    name: str
    place: str


def open_spool(settings: Settings) -> Spool:
    """The spool of this installation.

    Raises:
        ConfigurationError: `spool_url` makes no sense.
    """
    folder = settings.home / "spool"
    remote = None
    if settings.spool_url is not None:
        remote = open_remote_spool(settings.spool_url, settings.s3_endpoint_url, folder / CACHE)
    return Spool(folder, max_bytes=settings.max_bytes, remote=remote)


@contextmanager
def content_of(claim: Claim, settings: Settings, parked: Parked | None = None) -> Iterator[Content]:
    """Make the bytes of a claimed document available.

    Args:
        parked: of its page ranges, if it has any: what was fetched for them is not fetched again.

    Raises:
        PermanentError: there is no way to them, or what is there may not be fetched.
        RetryableError: not now.
    """
    if claim.kind == "file":
        file = local_path(claim.uri)
        with private_copy(file, settings.watch, settings.max_bytes) as copy:
            yield Content(copy, file.name, "/".join(file.parts[-3:]))
    elif claim.kind == "synced" and claim.location is None:
        raise PermanentError("not_fetched", "its sync has not been able to fetch it", "see: gristmill sync")
    elif claim.kind in ("upload", "text", "attachment", "synced", "enclosure"):
        name = claim.filename or file_name(claim.uri)
        yield Content(open_spool(settings).path(claim.location or ""), name, name)
    elif claim.kind == "url" and (path := _fetched_before(claim, settings, parked)):
        assert parked is not None
        yield Content(path, parked.name, claim.location or claim.uri)
    elif claim.kind == "url":
        from worker.fetch import fetched

        with fetched(claim.location or claim.uri, settings) as page:
            yield Content(page.path, claim.filename or page.name, claim.location or claim.uri)
    else:
        raise PermanentError(
            "unsupported_kind", f"documents of kind {claim.kind} cannot be fetched", "upgrade gristmill"
        )


def _fetched_before(claim: Claim, settings: Settings, parked: Parked | None) -> Path | None:
    """What was fetched for this very version, if it is still there."""
    if parked is None or parked.location is None or parked.version != claim.version:
        return None
    path = open_spool(settings).path(parked.location)
    return path if path.is_file() else None
