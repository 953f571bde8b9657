"""Pages as enhanced Markdown, the format of `GET /v1/pages/{id}/markdown`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.fakes.notion.blocks import Block, Rich, texts_of_rich
from tests.fakes.notion.render import Renderer, page_url
from tests.fakes.notion.world import World

UNSUPPORTED = ("bookmark", "embed", "link_preview", "unsupported", "template", "breadcrumb")
"""Types that the format cannot show; the documents name the first three as examples."""

_SPECIAL = re.compile(r"([\\*~`$\[\]<>{}|^])")


def _escaped(plain: str) -> str:
    return _SPECIAL.sub(r"\\\1", plain).replace("\n", "<br>")


def inline(said: Rich) -> str:
    """Rich text in one line."""
    return "".join(_piece(part) for part in said)


def _piece(part: dict[str, Any]) -> str:
    if part["type"] == "equation":
        return f"${part['equation']['expression']}$"
    if part["type"] == "mention":
        return _mention(part["mention"], part)
    style = part["annotations"]
    shown = f"`{part['plain_text']}`" if style["code"] else _escaped(part["plain_text"])
    for key, around in (("bold", "**"), ("italic", "*"), ("strikethrough", "~~")):
        if style[key]:
            shown = f"{around}{shown}{around}"
    if style["underline"]:
        shown = f'<span underline="true">{shown}</span>'
    if style["color"] != "default":
        shown = f'<span color="{style["color"].replace("_background", "_bg")}">{shown}</span>'
    return f"[{shown}]({part['href']})" if part["href"] else shown


def _mention(said: dict[str, Any], part: dict[str, Any]) -> str:
    plain = _escaped(part["plain_text"].removeprefix("@"))
    match said["type"]:
        case "user":
            return f'<mention-user url="user://{said["user"]["id"]}">{plain}</mention-user>'
        case "page" | "database" as kind:
            return f'<mention-{kind} url="{page_url(said[kind]["id"])}">{plain}</mention-{kind}>'
        case "date":
            end = f' end="{said["date"]["end"]}"' if said["date"]["end"] else ""
            return f'<mention-date start="{said["date"]["start"]}"{end}/>'
        case "link_mention" | "link_preview":
            return f"[{plain}]({part['href']})"
        case "custom_emoji":
            return f":{said['custom_emoji']['name']}:"
        case _:
            return plain


class _Writer:
    """Writes one answer, and counts how many blocks it has shown."""

    def __init__(self, renderer: Renderer, transcript: bool) -> None:
        self.world: World = renderer.world
        self.renderer = renderer
        self.transcript = transcript
        self.left = self.world.markdown_limit
        self.truncated = False
        self.unknown: list[str] = []
        self.lines: list[str] = []

    def write(self, blocks: Sequence[Block], depth: int) -> None:
        for one in blocks:
            self._block(one, depth)

    def _line(self, depth: int, content: str) -> None:
        self.lines.append("\t" * depth + content)

    def _below(self, one: Block, depth: int) -> None:
        self.write(self.world.children(one) or [], depth)

    def _tagged(self, one: Block, depth: int, name: str, attributes: str = "") -> None:
        self._line(depth, f"<{name}{attributes}>")
        self._below(one, depth + 1)
        self._line(depth, f"</{name}>")

    def _no(self, one: Block, depth: int, *, listed: bool) -> None:
        """A placeholder for what cannot be shown."""
        where = f"{page_url(one.page)}#{one.id.replace('-', '')}"
        alt = one.payload.get("block_type", one.type)
        self._line(depth, f'<unknown url="{where}" alt="{alt}"/>')
        if listed:
            self.truncated = True
            self.unknown.append(one.id)

    def _block(self, one: Block, depth: int) -> None:
        node = self.world.nodes.get(one.id)
        if self.left <= 0 or (node is not None and not self.world.accessible(node)):
            self._no(one, depth, listed=True)
            return
        self.left -= 1
        if node is not None:
            kind, title = one.type.removeprefix("child_"), _escaped("".join(texts_of_rich(node.title)))
            more = f' inline="{str(node.inline).lower()}"' if kind == "database" else ""
            self._line(depth, f'<{kind} url="{page_url(node.id)}"{more}>{title}</{kind}>')
        elif one.type in UNSUPPORTED:
            self._no(one, depth, listed=self.world.markdown_lists_unsupported)
        else:
            self._supported(one, depth)

    def _supported(self, one: Block, depth: int) -> None:
        payload = one.payload
        said = inline(payload.get("rich_text", []))
        marks = {"bulleted_list_item": "- ", "numbered_list_item": "1. ", "quote": "> "}
        match one.type:
            case "paragraph":
                self._line(depth, said or "<empty-block/>")
                self._below(one, depth + 1)
            case "bulleted_list_item" | "numbered_list_item" | "quote":
                self._line(depth, marks[one.type] + said)
                self._below(one, depth + 1)
            case "to_do":
                self._line(depth, f"- [{'x' if payload['checked'] else ' '}] {said}")
                self._below(one, depth + 1)
            case "heading_1" | "heading_2" | "heading_3" | "heading_4":
                toggle = ' {toggle="true"}' if payload["is_toggleable"] else ""
                self._line(depth, "#" * int(one.type[-1]) + f" {said}{toggle}")
                self._below(one, depth + 1)
            case "toggle":
                self._line(depth, "<details>")
                self._line(depth, f"<summary>{said}</summary>")
                self._below(one, depth + 1)
                self._line(depth, "</details>")
            case "callout":
                self._line(depth, f'<callout icon="{payload["icon"]["emoji"]}">')
                self._line(depth + 1, said)
                self._below(one, depth + 1)
                self._line(depth, "</callout>")
            case "code":
                self._line(depth, f"```{payload['language']}")
                for line in "".join(part["plain_text"] for part in payload["rich_text"]).split("\n"):
                    self._line(depth, line)
                self._line(depth, "```")
                if payload["caption"]:
                    self._line(depth, inline(payload["caption"]))
            case "equation":
                for line in ("$$", payload["expression"], "$$"):
                    self._line(depth, line)
            case "table":
                self._table(one, depth)
            case "divider":
                self._line(depth, "---")
            case "table_of_contents":
                self._line(depth, "<table_of_contents/>")
            case "column_list" | "column":
                self._tagged(one, depth, "columns" if one.type == "column_list" else "column")
            case "tab":
                self._tabs(one, depth)
            case "synced_block":
                self._synced(one, depth)
            case "link_to_page":
                self._link(one, depth)
            case "meeting_notes":
                self._meeting(one, depth)
            case _:
                self._media(one, depth)

    def _tabs(self, one: Block, depth: int) -> None:
        self._line(depth, "<tabs>")
        for label in one.children:
            self._line(depth + 1, "<tab>")
            self._line(depth + 2, inline(label.payload["rich_text"]))
            self._below(label, depth + 2)
            self._line(depth + 1, "</tab>")
        self._line(depth, "</tabs>")

    def _table(self, one: Block, depth: int) -> None:
        self._line(depth, f'<table header-row="{str(one.payload["has_column_header"]).lower()}">')
        for row in one.children:
            self.left -= 1
            self._line(depth + 1, "<tr>")
            for cell in row.payload["cells"]:
                self._line(depth + 2, f"<td>{inline(cell)}</td>")
            self._line(depth + 1, "</tr>")
        self._line(depth, "</table>")

    def _synced(self, one: Block, depth: int) -> None:
        origin = one.payload["synced_from"]
        if self.world.children(one) is None:
            self._no(one, depth, listed=True)
            return
        owner = self.world.blocks[origin["block_id"]] if origin else one
        where = f' url="{page_url(owner.page)}#{owner.id.replace("-", "")}"'
        self._tagged(one, depth, "synced_block_reference" if origin else "synced_block", where)

    def _link(self, one: Block, depth: int) -> None:
        kind = one.payload["type"]
        node = self.world.nodes.get(one.payload[kind])
        if node is None or not self.world.accessible(node):
            self._no(one, depth, listed=True)
            return
        name, title = kind.removesuffix("_id"), _escaped("".join(texts_of_rich(node.title)))
        self._line(depth, f'<{name} url="{page_url(node.id)}">{title}</{name}>')

    def _meeting(self, one: Block, depth: int) -> None:
        self._line(depth, "<meeting-notes>")
        self._line(depth + 1, inline(one.payload["title"]))
        for name, section in zip(("summary", "notes", "transcript"), one.children, strict=True):
            if name == "transcript" and not self.transcript:
                where = f"{page_url(one.page)}#{one.id.replace('-', '')}"
                self._line(depth + 1, f"<transcript>Transcript omitted: {where}</transcript>")
            else:
                self._tagged(section, depth + 1, name)
        self._line(depth, "</meeting-notes>")

    def _media(self, one: Block, depth: int) -> None:
        payload = self.renderer.block(one)[one.type]
        source, caption = payload[payload["type"]]["url"], inline(payload["caption"])
        shown = f"![{caption}]({source})" if one.type == "image" else None
        self._line(depth, shown or f'<{one.type} src="{source}">{caption}</{one.type}>')


def page_markdown(renderer: Renderer, id_: str, *, transcript: bool = False) -> dict[str, Any]:
    """The answer for a page, or for a block whose id an earlier answer gave as unknown."""
    writer = _Writer(renderer, transcript)
    node = renderer.world.nodes.get(id_)
    start = renderer.world.blocks[id_]
    if node is not None and node.kind == "page":
        writer.write(renderer.world.children(start) or [], 0)
    else:
        writer.write([start], 0)
    return {
        "object": "page_markdown",
        "id": id_,
        "markdown": "\n".join(writer.lines),
        "truncated": writer.truncated,
        "unknown_block_ids": writer.unknown,
    }
