"""A bucket of an S3-compatible store as a source, or what lies under a prefix in it.

A document is an object: its key here is the name below the prefix, its version the ETag. Two objects of the same
content mostly have the same ETag, so one that is copied and removed, which is how buckets rename, keeps its document.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, Self
from urllib.parse import quote, unquote_plus

from pydantic import Field, SecretStr, field_validator, model_validator

from worker.connectors.config import SyncConfig
from worker.connectors.contract import (
    Absence,
    Connector,
    Document,
    Gone,
    Incomplete,
    Item,
    Known,
    Surroundings,
    Unchanged,
)
from worker.object_store import ObjectStore, bucket_and_prefix, open_store
from worker.watchers.ignore import Ignore


class BucketConfig(SyncConfig):
    """A bucket to keep in step with.

    Patterns are those of GRISTMILL_IGNORE: without a slash they are compared with the last part of a name, with one
    with all of it, where `*` also crosses slashes; case does not matter.
    """

    type: Literal["bucket"]
    url: str = Field(pattern=r"^[a-z][a-z0-9+.-]*://.", description="s3://bucket or s3://bucket/prefix")
    endpoint_url: str | None = Field(None, pattern=r"^https?://[^@]+$", description="Of a store that is not Amazon's")
    key: SecretStr | None = Field(None, description="Access key; unset: AWS_ACCESS_KEY_ID, a profile or a role")
    secret: SecretStr | None = Field(None, description="Secret of that key")
    region: str | None = Field(None, description="Region of the bucket; unset: AWS_DEFAULT_REGION")
    anonymous: bool = Field(False, description="Ask without credentials, for public buckets")
    include: tuple[str, ...] = Field((), description="Only names that match one of these; none: all")
    exclude: tuple[str, ...] = Field((), description="Names to leave out, besides GRISTMILL_IGNORE")

    @field_validator("url", mode="after")
    @classmethod
    def _one_spelling(cls, value: str) -> str:
        if value.startswith("file:"):
            raise ValueError("a folder of this machine is a sync of type folder")
        if value.startswith("http"):
            raise ValueError("a web site is a sync of type sitemap or pages; for an endpoint there is endpoint_url")
        if ":" in value.partition("://")[2].partition("/")[0].rpartition("@")[0]:
            raise ValueError("a password in url would be seen in the uri of every document; give it to the driver")
        if not value.startswith("s3"):
            return value.rstrip("/")
        bucket, prefix = bucket_and_prefix(value)
        return f"s3://{bucket}/{prefix}".rstrip("/")

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.key is None) != (self.secret is None):
            raise ValueError("key and secret belong together")
        if self.key is not None and self.anonymous:
            raise ValueError("anonymous excludes key and secret")
        return self


class Bucket(Connector):
    """See `Connector`."""

    absence: ClassVar[Absence] = "gone"
    incremental: ClassVar[bool] = False

    def __init__(self, config: BucketConfig, surroundings: Surroundings, store: ObjectStore) -> None:
        settings = surroundings.settings
        scheme, _, self._place = config.url.partition("://")
        self._base = f"{scheme}://{quote(self._place)}"
        self._max_bytes = settings.max_bytes
        self._store = store
        self._ignore = Ignore((*settings.ignore, *config.exclude))
        self._included = _matcher(config.include)

    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """All objects there. An error midway leaves it incomplete, so nothing is concluded from it."""
        for one in self._store.listing():
            if self._wanted(one.name):
                yield Item(one.name, self.uri_of(one.name), one.version, content_addressed=one.etag is not None)

    def visit(self, key: str, known: Known | None, folder: Path) -> Document | Unchanged | Gone:
        """Download an object; its version is that of the bytes that came, whatever the listing said."""
        unless = None if known is None or known.missing else known.version
        place = folder / "object"
        try:
            found = self._store.download(key, place, max_bytes=self._max_bytes, unless=unless)
        except FileNotFoundError:
            return Gone("it is not in the bucket any more", at_once=True)
        if found is None:
            return Unchanged(version=unless)
        return Document(place, _file_name(key), self.uri_of(key), version=found.version)

    def uri_of(self, key: str) -> str:
        """The address of the object."""
        return f"{self._base}/{quote(key)}"

    def pushed(self, event: Any) -> Sequence[str]:
        """Keys named by a notification of S3 or MinIO, which have them as in a query string.

        Source: "Event message structure" in the user guide of Amazon S3.
        """
        match event:
            case {"Records": [*records]}:
                return [key for record in records if (key := self._key_of(record)) is not None]
            case _:
                return ()

    def close(self) -> None:
        """Give up connections."""
        self._store.close()

    def _wanted(self, name: str) -> bool:
        path = PurePosixPath(name)
        if not path.name or "\0" in name or self._ignore.beneath(path):
            return False
        return self._included(path)

    def _key_of(self, record: Any) -> str | None:
        match record:
            case {"s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(sent)}}}:
                place, full = f"{self._place}/", f"{bucket}/{unquote_plus(sent)}"
                key = full.removeprefix(place)
                return key if full.startswith(place) and not key.endswith("/") and self._wanted(key) else None
            case _:
                return None


def open_bucket(config: BucketConfig, surroundings: Surroundings) -> Bucket:
    """Open a bucket for a run. Nothing is asked of it yet.

    Raises:
        ConfigurationError: the URL makes no sense, or its driver is not installed.
    """
    store = open_store(
        config.url,
        endpoint_url=config.endpoint_url or surroundings.settings.s3_endpoint_url,
        key=config.key.get_secret_value() if config.key else None,
        secret=config.secret.get_secret_value() if config.secret else None,
        region=config.region,
        anonymous=config.anonymous,
    )
    return Bucket(config, surroundings, store)


def _matcher(patterns: Sequence[str]) -> Callable[[PurePosixPath], bool]:
    """Whether a name matches one of the patterns; with none, all do."""
    if not patterns:
        return lambda path: True
    lower = [one.strip("/").lower() for one in patterns]
    names = re.compile("|".join(fnmatch.translate(one) for one in lower if "/" not in one) or r"(?!)")
    paths = re.compile("|".join(fnmatch.translate(one) for one in lower if "/" in one) or r"(?!)")
    return lambda path: bool(names.match(path.name.lower()) or paths.match(str(path).lower()))


def _file_name(key: str) -> str:
    return PurePosixPath(key).name or key
