"""A place in an object store, by its URL: what is there, and single objects in and out.

`s3://bucket/prefix` means any S3-compatible store. Other schemes are those of fsspec, if its driver is installed.
Open a store in the process that uses it: connections and their thread do not survive a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pipelines.errors import ConfigurationError, PermanentError


@dataclass(frozen=True, slots=True)
class Stored:
    """An object.

    Attributes:
        name: below the place that was opened.
        size: bytes.
        modified: when it was written, with its zone; None where the store does not tell.
        etag: the store's mark of this content, without quotes.
    """

    name: str
    size: int
    modified: datetime | None
    etag: str | None

    @property
    def version(self) -> str:
        """Tells this content from another one: the etag, or else size and time."""
        return self.etag or f"{self.size}-{self.modified.isoformat() if self.modified else ''}"


class ObjectStore(Protocol):
    """Safe to use from several threads, and closed by whoever opened it.

    Errors of all methods:
        FileNotFoundError: there is no such object.
        PermanentError: `access_denied`, `archived`: this object cannot be had as things are.
        ConfigurationError: no such bucket, credentials that are not valid.
        UnavailableError: the store does not answer, or asks to wait.
        RetryableError: it broke off, or failed inside.
    """

    def listing(self) -> Iterator[Stored]:
        """Everything there, page by page as it is read, in no order; an error midway means that it is incomplete."""

    def look(self, name: str) -> Stored | None:
        """What is known of one object, without its bytes; None where it is not there."""

    def download(
        self, name: str, path: Path, *, max_bytes: int | None = None, unless: str | None = None
    ) -> Stored | None:
        """Write an object's bytes to a file; what is known of these very bytes.

        Args:
            max_bytes: more is a PermanentError, `too_large`.
            unless: an etag: with this one nothing is read, and None comes back. Not all stores look at it.
        """

    def upload(self, path: Path, name: str) -> None:
        """Keep a file as an object. It is there, whole and durably, once this returns."""

    def remove(self, name: str) -> None:
        """Remove an object; one that is not there is fine."""

    def close(self) -> None:
        """Give up connections."""


def open_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    region: str | None = None,
    anonymous: bool = False,
) -> ObjectStore:
    """Open a place in an object store. Nothing is asked of it yet.

    Args:
        url: as fsspec has it; all but this is for `s3:` only.
        endpoint_url: of a store that is not Amazon's.
        key, secret: credentials; without them the usual chain of AWS (variables, profile, role of the machine).
        anonymous: ask without credentials.

    Raises:
        ConfigurationError: the URL makes no sense, or its driver is not installed.
    """
    if url.startswith(("s3://", "s3a://")):
        from worker.object_store.s3 import S3Store

        return S3Store(url, endpoint_url=endpoint_url, key=key, secret=secret, region=region, anonymous=anonymous)
    from worker.object_store.tree import TreeStore

    return TreeStore(url)


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """The bucket of an `s3:` URL, and the prefix of keys it means: empty, or with a slash at its end.

    Raises:
        ConfigurationError: it names no bucket.
    """
    bucket, _, rest = url.partition("://")[2].partition("/")
    if not bucket:
        raise ConfigurationError("store_url", f"{url} names no bucket", "write s3://bucket or s3://bucket/prefix")
    return bucket, f"{rest.strip('/')}/" if rest.strip("/") else ""


def too_large(name: str, max_bytes: int) -> PermanentError:
    """The error for an object of more than `max_bytes`."""
    return PermanentError(
        "too_large",
        f"{name} has more than the {max_bytes:,} bytes allowed",
        "raise GRISTMILL_MAX_BYTES or split the document",
    )
