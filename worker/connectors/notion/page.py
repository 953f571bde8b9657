"""A visit of a page: its object first, then its text, properties and files.

Written against `reference/retrieve-a-page` and `reference/retrieve-page-markdown` for API 2026-03-11. The text comes
from the markdown endpoint, in one request; where a server does not have it, and for blocks that it cannot give, from
the blocks themselves.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines.errors import PermanentError
from worker.connectors.contract import Document, Gone, Known, Surroundings, Unchanged, Visit
from worker.connectors.notion.ancestry import Ancestry
from worker.connectors.notion.api import HiddenError, NoSuchCallError, NotionApi, RefusedError
from worker.connectors.notion.blocks import media_blocks, read_block, read_blocks
from worker.connectors.notion.config import NotionConfig
from worker.connectors.notion.content import Content, Media
from worker.connectors.notion.files import AGAIN_IN, TAKEN, Files, take_files, version_of
from worker.connectors.notion.ids import page_uri, plain_id
from worker.connectors.notion.markdown import read_markdown
from worker.connectors.notion.nodes import Node, escape, render, walk
from worker.connectors.notion.properties import property_files, property_nodes, read_properties, title_of

SETTLES = 120.0
"""Seconds after an edit during which another one may have the same time: Notion rounds it to the minute."""

MOST_PARTS = 1000
"""Parts that are fetched beside the page itself."""

MOST_LEVELS = 10
"""Parts of parts of parts."""

_BY_BLOCKS = (
    *("bookmark", "embed", "link_preview", "link_to_page", "alias", "template", "tab", "breadcrumb"),
    *("page", "child_page", "database", "child_database"),
)
"""Types that the markdown endpoint is documented or seen not to give, so that it need not be asked again; and pages
and databases, whose own text it would give."""


def trashed(page: Mapping[str, Any]) -> bool:
    """Whether a page is in the trash; `archived` is its name in older versions of the API."""
    return any(page.get(name) is True for name in ("in_trash", "archived", "is_archived"))


class Visitor:
    """Visits pages for one run."""

    def __init__(
        self,
        api: NotionApi,
        config: NotionConfig,
        surroundings: Surroundings,
        ancestry: Ancestry,
        roots: frozenset[str],
    ) -> None:
        self._api = api
        self._config = config
        self._surroundings = surroundings
        self._ancestry = ancestry
        self._roots = roots
        self._has_markdown = True

    def visit(
        self, key: str, page: Mapping[str, Any] | None, known: Known | None, folder: Path, *, glance: bool = False
    ) -> Visit:
        """Look at a page.

        Args:
            page: its object, if it was given just now.
            glance: take its version's word for it that it is unchanged. Not so where an event told of it: some edits
                leave the time of the last edit as it was.
        """
        read_at = self._surroundings.clock()
        try:
            page = page or self._api.page(key)
            if trashed(page):
                return Gone("in the trash of Notion", at_once=True)
            self._ancestry.remember(page)
            if self._roots and not self._ancestry.below(page, self._roots):
                if self._ancestry.is_refused(page):
                    raise PermanentError(
                        "notion_unplaced",
                        "Notion does not tell where the page is, so not whether it is below a root of this sync",
                        "add the page itself to roots, or move it",
                    )
                return Gone("not below any of the roots of this sync", at_once=True)
            edited = str(page.get("last_edited_time") or "")
            version = edited if _settled(edited, read_at) else None
            if glance and _unchanged(known, version):
                assert known is not None
                return Unchanged(version, known.state)
            return self._document(key, page, version, known, folder)
        except HiddenError:
            return Gone("not shared with the connection any more, or deleted", at_once=True)

    def _document(
        self, key: str, page: Mapping[str, Any], version: str | None, known: Known | None, folder: Path
    ) -> Document:
        uri = page_uri(key)
        title = " ".join(title_of(page).split())
        content = self._content(key)
        values = read_properties(page, lambda name: self._values(key, name, content))
        nodes = [*property_nodes(page, values), *_without_title(content.nodes, title)]
        files = self._files(key, page, uri, content, known, folder)
        metadata: dict[str, Any] = {"title": title or "Untitled", "url": page.get("url") or uri}
        above = known.state.get("above") if known else None
        if path := self._ancestry.path(page, above or ()):
            metadata["path"] = path
        if len(values) > (1 if title else 0):
            metadata["properties"] = _without_own_title(page, values)
        state = {
            "children": sorted(set(content.pages)),
            "databases": sorted(set(content.databases)),
            "files": files.versions,
            "above": [self._ancestry.parent(page), path],
            "later": files.later,
        }
        return Document(
            content=_text(title, nodes).encode("utf-8", "replace"),
            filename=_filename(title),
            uri=uri,
            metadata=metadata,
            version=version,
            state=state,
            again_in=AGAIN_IN if files.later else None,
            enclosures=tuple(files.enclosures),
            unread=tuple(dict.fromkeys([*content.unread, *files.unread])),
        )

    def _values(self, key: str, name: str, content: Content) -> list[Mapping[str, Any]]:
        """All values of a property; none where they cannot be had, and it is noted."""
        try:
            return list(self._api.property_items(key, name))
        except (HiddenError, RefusedError, NoSuchCallError) as error:
            content.unread.append(f"the values of a property beyond the first: {error.cause}")
            return []

    def _content(self, key: str) -> Content:
        if self._has_markdown:
            try:
                return self._from_markdown(key)
            except NoSuchCallError:
                self._has_markdown = False
            except RefusedError:
                return read_blocks(self._api, key)
        return read_blocks(self._api, key)

    def _from_markdown(self, key: str) -> Content:
        answer = self._api.markdown(key)
        content = read_markdown(str(answer.get("markdown") or ""))
        parts = [node for node in walk(content.nodes) if node.kind == "part"]
        listed = {part.text for part in parts}
        for unknown in answer.get("unknown_block_ids") or ():
            block = plain_id(str(unknown))
            if block and block not in listed:
                parts.append(Node("part", block))
                content.nodes.append(parts[-1])
        seen = {key}
        waiting = deque((part, 1) for part in parts)
        while waiting:
            part, level = waiting.popleft()
            if part.text in seen:
                continue
            if len(seen) > MOST_PARTS or level > MOST_LEVELS:
                content.unread.append("parts of the page beyond those that are fetched")
                break
            seen.add(part.text)
            found = self._part(part)
            content.take(found)
            part.children = found.nodes
            waiting.extend((node, level + 1) for node in walk(found.nodes) if node.kind == "part")
        return content

    def _part(self, part: Node) -> Content:
        """What the page has in one place, from the same endpoint or from the blocks."""
        what = f"a part of the type {part.note}" if part.note else "a part of the page"
        try:
            if part.note not in _BY_BLOCKS:
                try:
                    found = read_markdown(str(self._api.markdown(part.text).get("markdown") or ""))
                    if not any(node.kind == "part" and node.text == part.text for node in walk(found.nodes)):
                        return found
                except (RefusedError, NoSuchCallError):
                    return read_block(self._api, part.text)
            return read_block(self._api, part.text)
        except HiddenError:
            return Content(unread=[f"{what} that is not shared with the connection"])
        except RefusedError as error:
            return Content(unread=[f"{what}: {error.cause}"])

    def _files(
        self, key: str, page: Mapping[str, Any], uri: str, content: Content, known: Known | None, folder: Path
    ) -> Files:
        if not self._config.files:
            return Files()
        before: Mapping[str, str] = dict(known.state.get("files") or {}) if known else {}
        media = [*self._located(key, content.media, before), *property_files(page)]
        return take_files(self._api, self._surroundings.settings, page, uri, media, before, folder)

    def _located(self, key: str, media: list[Media], before: Mapping[str, str]) -> list[Media]:
        """The page's files with their blocks' ids, which enhanced Markdown does not tell.

        The blocks are read for them unless all files are those of the last visit.
        """
        open_ = [one for one in media if one.hosted is None and one.kind in TAKEN]
        if not open_:
            return media
        keys = {version: name for name, version in before.items()}
        if all(version_of(one) in keys for one in open_):
            return [
                Media(one.kind, one.url, keys[version_of(one)], hosted=True) if one in open_ else one for one in media
            ]
        found = list(media_blocks(self._api, key))
        told = {(one.kind, version_of(one)) for one in found}
        # In a part that the blocks do not lead to: a file of Notion's own if it is signed like one.
        rest = [
            Media(one.kind, one.url, one.block, one.name, hosted="x-amz-" in one.url.lower())
            for one in open_
            if (one.kind, version_of(one)) not in told
        ]
        return [*found, *(one for one in media if one.hosted), *rest]


def _settled(edited: str, now: datetime) -> bool:
    try:
        return (now - datetime.fromisoformat(edited)).total_seconds() >= SETTLES
    except (ValueError, TypeError):
        return False


def _unchanged(known: Known | None, version: str | None) -> bool:
    return (
        known is not None
        and version is not None
        and known.version == version
        and not known.missing
        and not known.state.get("later")
    )


def _text(title: str, nodes: list[Node]) -> str:
    """The document: its title as front matter, where it is no text of its own, then what it says.

    A page without any text is found by its title all the same.
    """
    body = render(nodes)
    head = f"---\ntitle: {title}\n---\n\n" if title else ""  # as pipelines.extract.markdown reads it: not YAML's quotes
    return head + (body or escape(title or "Untitled") + "\n")


def _without_title(nodes: list[Node], title: str) -> list[Node]:
    """The page's nodes, but for a first heading that repeats its title."""
    first = nodes[0] if nodes else None
    if first and first.kind == "heading" and re.sub(r"\\(.)", r"\1", first.text).split() == title.split():
        return [*nodes[0].children, *nodes[1:]]
    return nodes


def _without_own_title(page: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {str(name): own.get("type") for name, own in (page.get("properties") or {}).items()}
    return {name: value for name, value in values.items() if kinds.get(name) != "title"}


def _filename(title: str) -> str:
    bare = re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|]', "_", title).strip(" .")[:100]
    return f"{bare or 'page'}.md"
