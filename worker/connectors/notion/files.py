"""Files of a page, fetched while their signed addresses hold, which is an hour (`reference/file-object`).

What a file is, is told by the path of its address: Notion gives each upload a path of its own, and signs it in the
query. A file that lies elsewhere is a link in the text and no document of ours.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, urlsplit

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError
from worker.connectors.contract import Enclosure
from worker.connectors.notion.api import NotionApi
from worker.connectors.notion.content import Media
from worker.connectors.notion.nodes import file_name
from worker.connectors.notion.properties import property_files
from worker.fetch import fetched
from worker.settings import Settings

TAKEN = ("image", "file", "pdf")
"""Kinds that text can come of."""

LONGEST_FRAGMENT = 500

AGAIN_IN = 3600.0
"""Seconds until a file that could not be had for the moment is asked for again."""


@dataclass(slots=True)
class Files:
    """What became of a page's files.

    Attributes:
        versions: of each file that is taken, by its key.
        unread: files that could not be had, in plain words.
        later: one of them may be had another time.
    """

    enclosures: list[Enclosure] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    later: bool = False


def version_of(media: Media) -> str:
    """What the file's content is: its address without the signature."""
    return urlsplit(media.url).path


def take_files(
    api: NotionApi,
    settings: Settings,
    page: Mapping[str, Any],
    uri: str,
    media: Sequence[Media],
    known: Mapping[str, str],
    folder: Path,
) -> Files:
    """Fetch the files whose version is not the known one.

    Args:
        uri: of the page.
        media: what the page shows, and the values of its properties.
        known: versions of the last visit, by key.
        folder: where they are put.
    """
    files = Files()
    for number, one in enumerate(media):
        if not one.hosted or one.kind not in TAKEN or not one.url:
            continue
        version = version_of(one)
        key = _unique(_key(one), version, files.versions)
        if key is None:
            continue
        name = one.name if PurePath(one.name).suffix else file_name(one.url) or one.name or one.kind
        enclosure = Enclosure(key, f"{uri}#{_fragment(key)}", name, None, version)
        if known.get(key) != version:
            path = folder / str(number)
            try:
                _fetch(one, settings, path, lambda one=one: _renewed(api, page, one))  # type: ignore[misc]
            except RetryableError as error:
                files.later = True
                files.unread.append(f"the file {name}: {error.cause}")
                if key not in known:
                    continue
                enclosure = Enclosure(key, enclosure.uri, name, None, known[key])  # better the old one than none
            except ConfigurationError:
                raise
            except GristmillError as error:
                files.unread.append(f"the file {name}: {error.cause}")
                continue
            else:
                enclosure = Enclosure(key, enclosure.uri, name, path, version)
        files.enclosures.append(enclosure)
        files.versions[key] = enclosure.version or version
    return files


def _unique(key: str, version: str, taken: Mapping[str, str]) -> str | None:
    """The key, with a number where another file has it, e.g. of the same name; None for a file that was taken."""
    number = 1
    while (found := key if number == 1 else f"{key}~{number}") in taken:
        if taken[found] == version:
            return None
        number += 1
    return found


def _key(media: Media) -> str:
    if media.block:
        return media.block
    if media.place:
        return f"{media.place}/{media.name or file_name(media.url)}"
    return hashlib.sha256(version_of(media).encode()).hexdigest()[:32]


def _fragment(key: str) -> str:
    """What tells the file's uri from those of the others; a very long name by its hash, for the sake of the index."""
    quoted = quote(key.encode("utf-8", "replace"), safe="")
    return quoted if len(quoted) <= LONGEST_FRAGMENT else hashlib.sha256(quoted.encode()).hexdigest()


def _fetch(media: Media, settings: Settings, path: Path, renewed: Callable[[], str | None]) -> None:
    try:
        _download(media.url, settings, path)
    except PermanentError as error:
        if error.code != "fetch_denied":
            raise
        url = renewed()  # the signature has run out
        if not url:
            raise
        _download(url, settings, path)


def _download(url: str, settings: Settings, path: Path) -> None:
    with fetched(url, settings) as page:
        shutil.move(page.path, path)


def _renewed(api: NotionApi, page: Mapping[str, Any], media: Media) -> str | None:
    """The file's address with a new signature."""
    if media.block:
        block = api.block(media.block)
        own = block.get(str(block.get("type"))) or {}
        return (own.get(str(own.get("type"))) or {}).get("url")
    if media.place:
        again = property_files(api.page(str(page["id"])))
        return next((one.url for one in again if _key(one) == _key(media)), None)
    return None
