"""What providers say, made such that Postgres takes it: neither text nor jsonb takes NUL or half a character."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipelines.errors import GristmillError, PermanentError
from worker.connectors.contract import Document, Unchanged

MOST_NAME_BYTES = 2_048
"""Of a key or a uri: an entry of a B-tree index holds 2,704 bytes (source: PostgreSQL, "B-Tree Indexes")."""

MOST_VERSION_BYTES = 1_000
MOST_SAID = 1_000

_BAD = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Text with U+FFFD for what cannot be kept."""
    return _BAD.sub("\N{REPLACEMENT CHARACTER}", text)


def said(text: str) -> str:
    """The same of what is there to be read by people, who need no more than its beginning."""
    return storable(text[:MOST_SAID])


def storable_json(value: Any) -> Any:
    """A value with all of its text made storable; numbers that are none become null."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable(key) if isinstance(key, str) else key: storable_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(one) for one in value]
    return value


def storable_version(version: str | None) -> str | None:
    """A version; one that is too long for an index is known by its hash."""
    if version is None or (len(version) * 4 <= MOST_VERSION_BYTES and not _BAD.search(version)):
        return version
    found = storable(version).encode()
    return found.decode() if len(found) <= MOST_VERSION_BYTES else f"sha256:{hashlib.sha256(found).hexdigest()}"


def is_name(text: str) -> bool:
    """Whether a row can have this key or uri."""
    return not _BAD.search(text) and 0 < len(text.encode()) <= MOST_NAME_BYTES


def check_name(text: str) -> None:
    """Refuse a key or a uri that no row can have.

    Raises:
        PermanentError: `unusable_name`.
    """
    if not is_name(text):
        raise PermanentError(
            "unusable_name",
            f"{said(text)[:200]!r} is empty, has more than {MOST_NAME_BYTES:,} bytes, or characters that are none",
            "give it another name there",
        )


def storable_document(found: Document) -> Document:
    """A document that rows can be made of.

    Raises:
        PermanentError: its uri, or that of a file of it, cannot be kept.
    """
    for uri in (found.uri, *(one.uri for one in found.enclosures)):
        check_name(uri)
    return replace(
        found,
        filename=storable(found.filename),
        metadata=storable_json(found.metadata),
        version=storable_version(found.version),
        state=storable_json(found.state),
        enclosures=[replace(one, filename=storable(one.filename)) for one in found.enclosures],
    )


def storable_unchanged(found: Unchanged) -> Unchanged:
    """The same of what a visit left for the next one."""
    return replace(found, version=storable_version(found.version), state=storable_json(found.state))


def storable_error(error: GristmillError) -> tuple[str, str, str]:
    """Code, cause and remedy of an error."""
    return storable(error.code), said(error.cause), said(error.remedy)
