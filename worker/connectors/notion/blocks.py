"""A page's blocks read into nodes, one request for each hundred of them and for each that has others below it.

Written against `reference/block` and the types of the official JavaScript client (5.26, August 2026) for API
2026-03-11, with the names that older versions have (`transcription`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from worker.connectors.notion.api import HiddenError, NotionApi, RefusedError
from worker.connectors.notion.content import Content, Media
from worker.connectors.notion.ids import page_uri, plain_id
from worker.connectors.notion.nodes import BREAK, Kind, Node, escape, link, media
from worker.connectors.notion.rich_text import markdown, plain

DEEPEST = 40
"""Levels of blocks that are read."""

_TEXTS: Mapping[str, Kind] = {
    "paragraph": "paragraph",
    "toggle": "paragraph",
    "template": "paragraph",
    "callout": "paragraph",
    "bulleted_list_item": "bullet",
    "numbered_list_item": "number",
    "to_do": "bullet",
    "quote": "quote",
}
_MEDIA = ("image", "file", "pdf", "video", "audio")
_LINKS = ("bookmark", "embed", "link_preview")
_GROUPS = ("column_list", "column", "tab")
_SILENT = ("breadcrumb", "table_of_contents")
_NOT_BELOW = ("child_page", "child_database", "table", "synced_block", "meeting_notes", "transcription", "unsupported")


def read_blocks(api: NotionApi, parent: str) -> Content:
    """All that lies below a page or block."""
    walker = _Walker(api)
    walker.content.nodes = walker.below(parent, 0)
    return walker.content


def read_block(api: NotionApi, block: str) -> Content:
    """A block with all that lies below it.

    Raises:
        HiddenError: it is not shared with the connection.
        RefusedError: the API does not give blocks of this type.
    """
    walker = _Walker(api)
    node = walker.node(api.block(block), 1)
    walker.content.nodes = [node] if node else []
    return walker.content


def media_blocks(api: NotionApi, parent: str) -> Iterator[Media]:
    """The files below a page or block, with their blocks' ids."""
    yield from read_blocks(api, parent).media


class _Walker:
    def __init__(self, api: NotionApi) -> None:
        self._api = api
        self._seen: set[str] = set()
        self.content = Content()

    def below(self, parent: str, depth: int, what: str = "a part of the page") -> list[Node]:
        """What lies below a block; where it is not shared, `what` is noted as unread, but for the first level."""
        if depth >= DEEPEST:
            self.content.unread.append(f"blocks nested deeper than {DEEPEST} levels")
            return []
        if parent in self._seen:
            return []
        self._seen.add(parent)
        nodes = []
        try:
            for block in self._api.children(parent):
                node = self.node(block, depth)
                if node is not None:
                    nodes.append(node)
        except RefusedError as error:
            self.content.unread.append(f"blocks that the API does not give: {error.cause}")
        except HiddenError:
            if depth == 0:
                raise
            self.content.unread.append(f"{what} that is not shared with the connection")
        return nodes

    def node(self, block: Mapping[str, Any], depth: int) -> Node | None:
        kind = str(block.get("type") or "")
        own = block.get(kind) or {}
        node = self._own(kind, own, block, depth)
        if node is not None and block.get("has_children") and kind not in _NOT_BELOW:
            node.children += self.below(_id(block), depth + 1)
        return node

    def _own(self, kind: str, own: Mapping[str, Any], block: Mapping[str, Any], depth: int) -> Node | None:
        if kind in _TEXTS:
            text = markdown(own.get("rich_text"))
            if kind == "to_do":
                text = f"[{'x' if own.get('checked') else ' '}] {text}".rstrip()
            return Node(_TEXTS[kind], text)
        if kind.startswith("heading_") and kind[8:].isdigit():
            return Node("heading", markdown(own.get("rich_text")), level=min(int(kind[8:]), 6))
        if kind == "code":
            caption = markdown(own.get("caption"))
            code = Node("code", plain(own.get("rich_text")), note=str(own.get("language") or ""))
            return Node("group", children=[code, Node("paragraph", caption)])
        if kind == "equation":
            return Node("code", str(own.get("expression") or ""), note="latex")
        if kind == "divider":
            return Node("divider")
        if kind == "table":
            return Node("table", rows=self._rows(block, depth))
        if kind == "table_row":
            return Node("table", rows=[[markdown(cell) for cell in own.get("cells") or ()]])
        if kind in _MEDIA:
            return self._media(kind, own, _id(block))
        if kind in _LINKS:
            url = str(own.get("url") or "")
            shown = link(escape(url), url)  # the address is all that is known of it, and so is text
            caption = markdown(own.get("caption")).replace(BREAK, " ")
            return Node("paragraph", f"{caption}: {shown}" if caption else shown)
        if kind in ("child_page", "child_database"):
            (self.content.pages if kind == "child_page" else self.content.databases).append(_id(block))
            return Node("paragraph", link(_title(own.get("title")) or kind[6:], page_uri(_id(block))))
        if kind == "link_to_page":
            target = plain_id(str(own.get(str(own.get("type"))) or ""))
            if target is None or own.get("type") not in ("page_id", "database_id"):
                return None
            return Node("paragraph", link("page", page_uri(target)))
        if kind == "synced_block":
            return self._synced(own, block, depth)
        if kind in ("meeting_notes", "transcription"):
            return self._meeting(own, depth)
        return self._other(kind, own)

    def _other(self, kind: str, own: Mapping[str, Any]) -> Node | None:
        if kind in _GROUPS:
            return Node("group")
        if kind in _SILENT:
            return None
        if own.get("rich_text"):  # a type that is newer than this
            return Node("paragraph", markdown(own["rich_text"]))
        what = str(own.get("block_type") or kind or "unknown")
        self.content.unread.append(f"a block of the type {what}, which the API does not give")
        return Node("group")

    def _rows(self, block: Mapping[str, Any], depth: int) -> list[list[str]]:
        rows = self.below(_id(block), depth + 1, "a table")
        return [cells for row in rows for cells in row.rows]

    def _media(self, kind: str, own: Mapping[str, Any], block: str) -> Node:
        hosted = own.get("type") in ("file", "file_upload")
        url = str((own.get(str(own.get("type"))) or {}).get("url") or "")
        name = str(own.get("name") or "")
        self.content.media.append(Media(kind, url, block, name, hosted))
        return Node("paragraph", media(kind, url, markdown(own.get("caption")), name, not hosted))

    def _synced(self, own: Mapping[str, Any], block: Mapping[str, Any], depth: int) -> Node:
        original = plain_id(str((own.get("synced_from") or {}).get("block_id") or ""))
        return Node("group", children=self.below(original or _id(block), depth + 1, "the original of a synced block"))

    def _meeting(self, own: Mapping[str, Any], depth: int) -> Node:
        parts = own.get("children") or {}
        children = [Node("paragraph", markdown(own.get("title")))]
        for name in ("summary_block_id", "notes_block_id", "transcript_block_id"):
            if isinstance(parts, Mapping) and (part := plain_id(str(parts.get(name) or ""))):
                children += self.below(part, depth + 1, "a part of a meeting's notes")
        return Node("group", children=children)


def _id(block: Mapping[str, Any]) -> str:
    return plain_id(str(block.get("id") or "")) or ""


def _title(title: Any) -> str:
    return markdown([{"type": "text", "plain_text": str(title)}]) if title else ""
