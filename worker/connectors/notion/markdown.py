"""Notion's enhanced Markdown read into nodes.

Written against `guides/data-apis/enhanced-markdown` and `guides/data-apis/working-with-markdown-content` as of 2026
(API 2026-03-11), and against texts that people published from it. What matters here: one line is one block, tabs are
its depth, `<br>` is a line break, `{color="…"}` at the end of a line is no text, tags stand for what Markdown has
nothing for, and `\\ * ~ ` $ [ ] < > { } | ^` are escaped where they are text. So any other `_` or `&` is text as well,
which CommonMark would not know, and every `*` that is not escaped is a mark.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from worker.connectors.notion.content import Content, Media
from worker.connectors.notion.ids import block_of, page_uri, plain_id
from worker.connectors.notion.nodes import BREAK, Node, code_span, escape, escape_start, link, media, trimmed

_ATTRIBUTE = re.compile(r'([A-Za-z][\w-]*)\??="([^"]*)"')
_TRAILING = re.compile(r'(?<!\\) ?\{(?: ?[A-Za-z][\w-]*="[^"]*")+ ?\}$')
_TAG = re.compile(
    r"<(?P<name>[a-z][a-z_-]*)(?P<attributes>(?:\s+[\w-]+\??=\"[^\"]*\")*)\s*(?:/>|>(?:(?P<text>.*)</(?P=name)>)?)\s*"
)
_CLOSING = re.compile(r"</[a-z][a-z_-]*>|:{3,}")
_CALLOUT = re.compile(r":{3,}\s*[a-z]+\s*(?:\{.*\})?")
_HEADING = re.compile(r"▶?(#{1,6})\s+(.*)")
_TASK = re.compile(r"[-*]\s+\[([ xX]?)\](?:\s+(.*))?")
_BULLET = re.compile(r"[-*](?:\s+(.*))?")
_NUMBER = re.compile(r"\d{1,9}\.(?:\s+(.*))?")
_QUOTE = re.compile(r">\s?(.*)")
_IMAGE = re.compile(r"!\[((?:\\.|[^\]\\])*)\]\(<?((?:[^\s()<>]|\([^\s()]*\))*)>?\)\s*")
_FENCE = re.compile(r"(`{3,})([^`]*)")
_CELLS = re.compile(r"(?<!\\)<(/?)(tr|td|th)(?:\s[^<>]*)?>")
_RULE = re.compile(r"\|?(?:\s*:?-{3,}:?\s*\|)+\s*:?-*:?\s*")
_MEDIA = ("image", "file", "pdf", "video", "audio")
DEEPEST = 40
"""Levels that are told apart; what is deeper counts as being at the last one."""

_SILENT = ("empty-block", "table_of_contents", "breadcrumb", "colgroup", "col")

_STAR, _TILDE = "\ufdd0", "\ufdd1"  # not characters, so in no text
_TOKEN = re.compile(
    r"\\(?P<escaped>.)"
    r"|(?P<fence>`++)(?P<code>.+?)(?<!`)(?P=fence)(?!`)"
    r"|(?P<ticks>`++)"
    r"|\$(?P<tick>`++)(?P<math>(?:(?!\$`).)+?)(?<!`)(?P=tick)\$"
    r"|\$(?P<formula>(?:\\.|[^$\\])+)\$"
    r"|(?P<break><br\s*/?>)"
    r"|<mention-(?P<kind>[a-z-]+)(?P<attributes>[^<>]*?)(?:/>|>(?P<name>(?:(?!<mention-).)*?)</mention-(?P=kind)>)"
    r"|(?P<tag></?(?:span|u|sub|sup)(?:\s[^<>]*)?>)"
    r"|\]\((?P<url>(?:[^\s()\\]|\\.|\([^\s()]*\))*)\)"
    r"|\[\^(?P<source>[^\[\]\s]+)\]"
    r"|(?P<stars>\*{1,3})|(?P<tildes>~~)|(?P<plain>[_&])"
)
_KEPT = re.compile(rf"(?<![\w{_STAR}])({_STAR}{{1,3}}|{_TILDE})(?=\w)([^{_STAR}{_TILDE}]*?)(?<=\w)\1(?![\w{_STAR}])")
_PAIR = re.compile(rf"({_STAR}{{1,3}}|{_TILDE})([^{_STAR}{_TILDE}]*)\1")


def read_markdown(text: str) -> Content:
    """A text of the markdown endpoint; blocks that it could not give are nodes of the kind `part`."""
    return _Reader(text).read()


def inline(text: str) -> str:
    """One line of enhanced Markdown as CommonMark; a line break is `nodes.BREAK`.

    Marks that CommonMark would read as text, as it does beside a letter or a punctuation mark, are left out.
    """
    text = _TOKEN.sub(_token, text)
    text = _KEPT.sub(lambda found: _mark(found[1]) + found[2] + _mark(found[1]), text)
    while (shorter := _PAIR.sub(r"\2", text)) != text:
        text = shorter
    text = text.replace(_STAR, r"\*").replace(_TILDE, r"\~\~")
    return BREAK.join(map(escape_start, trimmed(text).split(BREAK)))


def _mark(sentinels: str) -> str:
    return sentinels.replace(_STAR, "*").replace(_TILDE, "~~")


def _token(found: re.Match[str]) -> str:
    if (code := found["code"]) is not None:
        return code_span(code)
    if (math := found["math"] or found["formula"]) is not None:
        return f"${code_span(math)}$"
    if found["ticks"]:  # a mark that is never closed
        return found[0]
    if found["break"]:
        return BREAK
    if found["kind"]:
        return _mention(found["kind"], _attributes(found["attributes"]), found["name"] or "")
    if found["tag"]:
        return ""
    if (url := found["url"]) is not None:
        return "](" + (url.partition("?")[0] if "X-Amz-" in url else url) + ")"
    if found["source"]:
        return f" ({escape(found['source'])})"
    if stars := found["stars"]:
        at = found.string
        before, after = at[: found.start()][-1:], at[found.end() :][:1]
        return r"\*" * len(stars) if (before or " ").isspace() and (after or " ").isspace() else _STAR * len(stars)
    if found["tildes"]:
        return _TILDE
    if found["plain"]:
        return "\\" + found["plain"]
    escaped = found["escaped"]
    return found[0] if escaped.isascii() and not escaped.isalnum() and not escaped.isspace() else "\\" + found[0]


def _mention(kind: str, attributes: dict[str, str], name: str) -> str:
    name = inline(name) if name.strip() else ""
    if kind == "date":
        start = " ".join(filter(None, (attributes.get("start"), attributes.get("startTime"))))
        end = " ".join(filter(None, (attributes.get("end"), attributes.get("endTime"))))
        shown = " to ".join(filter(None, (start, end)))
        return escape(" ".join(filter(None, (shown, attributes.get("timeZone")))) if shown else "") or name
    if kind in ("user", "agent"):
        return f"@{name.removeprefix('@')}" if name else ""
    return link(name or ("page" if kind == "page" else "link"), _lasting(attributes.get("url", "")))


def _lasting(url: str) -> str:
    """The address of a page that stays the same; others as they are."""
    found = plain_id(url) if "#" not in url and urlsplit(url).netloc.endswith(("notion.so", "notion.com")) else None
    return page_uri(found) if found else url


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(text)}


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.replace("\r\n", "\n").split("\n")
        self._at = 0
        self._content = Content()
        self._open: list[tuple[int, Node]] = []

    def read(self) -> Content:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            body = line.lstrip("\t ")
            if not body.strip():
                continue
            depth = len(line) - len(line.lstrip("\t"))
            node = self._block(body.rstrip(), depth)
            if node is not None:
                self._place(node, depth)
        return self._content

    def _place(self, node: Node, depth: int) -> None:
        while self._open and (self._open[-1][0] >= depth or len(self._open) >= DEEPEST):
            self._open.pop()
        (self._open[-1][1].children if self._open else self._content.nodes).append(node)
        self._open.append((depth, node))

    def _block(self, body: str, depth: int) -> Node | None:
        if fence := _FENCE.fullmatch(body):
            return Node("code", "\n".join(self._until(fence[1], depth)), note=_TRAILING.sub("", fence[2]).strip())
        if body == "$$":
            return Node("code", "\n".join(self._until("$$", depth)), note="latex")
        if body.startswith("$$") and body.endswith("$$") and len(body) > 4:
            return Node("code", body[2:-2], note="latex")
        if re.match(r"<table[\s>]", body):
            return self._table(body)
        if body.startswith("|") and self._at < len(self._lines) and _RULE.fullmatch(self._lines[self._at].strip()):
            return self._pipes(body)
        if _CLOSING.fullmatch(body):
            return None
        if _CALLOUT.fullmatch(body):
            return Node("group")
        if tag := _TAG.fullmatch(body):
            known = self._tag(tag["name"], _attributes(tag["attributes"] or ""), tag["text"])
            if known is not None:
                return known
        return self._text(_TRAILING.sub("", body))

    def _text(self, body: str) -> Node:
        if body == "---":
            return Node("divider")
        if found := _IMAGE.fullmatch(body):
            return self._media("image", found[2], found[1])
        if found := _HEADING.fullmatch(body):
            return Node("heading", inline(found[2]), level=len(found[1]))
        if found := _TASK.fullmatch(body):
            return Node("bullet", f"[{'x' if found[1] in ('x', 'X') else ' '}] {inline(found[2] or '')}".rstrip())
        if found := _BULLET.fullmatch(body):
            return Node("bullet", inline(found[1] or ""))
        if found := _NUMBER.fullmatch(body):
            return Node("number", inline(found[1] or ""))
        if found := _QUOTE.fullmatch(body):
            return Node("quote", inline(found[1]))
        return Node("paragraph", inline(body))

    def _tag(self, name: str, attributes: dict[str, str], text: str | None) -> Node | None:
        """A block that is a tag; None for one that belongs to a line of text."""
        url = attributes.get("url", "")
        if name in _SILENT:
            return Node("group")
        if name in _MEDIA:
            return self._media(name, attributes.get("src") or attributes.get("source") or "", text or "")
        if name == "unknown":
            part = block_of(url)
            return Node("part", part or "", note=attributes.get("alt", "")) if part else Node("group")
        if name in ("page", "database"):
            found = plain_id(url)
            if found:
                (self._content.pages if name == "page" else self._content.databases).append(found)
            return Node("paragraph", link(inline(text or "") or name, _lasting(url)))
        if name.startswith("mention-") or name in ("br", "span", "u"):
            return None
        if text is not None:  # `<summary>`, and whatever holds a line of text
            return Node("paragraph", inline(text))
        return Node("group")

    def _media(self, kind: str, url: str, caption: str) -> Node:
        url = html.unescape(url)
        # What Notion keeps is signed, and so has a query; the address is another one each time.
        lasting = urlsplit(url).scheme in ("http", "https") and not urlsplit(url).query
        self._content.media.append(Media(kind, url, hosted=False if lasting else None))
        name = "" if urlsplit(url).scheme in ("http", "https") else kind
        return Node("paragraph", media(kind, url if lasting else url.partition("?")[0], inline(caption), name, lasting))

    def _until(self, end: str, depth: int) -> Iterator[str]:
        """Lines up to one that is `end`, without the tabs of their depth."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            tabs = min(depth, len(line) - len(line.lstrip("\t")))
            line = line[tabs:]
            mark = line.strip()
            if mark.startswith(end) and not mark.strip(end[0]) and (len(mark) >= len(end)):
                return
            yield line

    def _table(self, body: str) -> Node:
        lines = [body]
        while "</table>" not in lines[-1] and self._at < len(self._lines):
            lines.append(self._lines[self._at].strip())
            self._at += 1
        return Node("table", rows=[list(map(inline, row)) for row in _rows("\n".join(lines))])

    def _pipes(self, body: str) -> Node:
        rows = [body]
        self._at += 1
        while self._at < len(self._lines) and self._lines[self._at].lstrip().startswith("|"):
            rows.append(self._lines[self._at].strip())
            self._at += 1
        cells = (re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|")) for row in rows)
        return Node("table", rows=[[inline(cell.strip()) for cell in row] for row in cells])


def _rows(table: str) -> list[list[str]]:
    """Cells between the tags of a table; a cell that is not closed ends where the next one begins."""
    rows: list[list[str]] = []
    start: int | None = None

    def end(at: int) -> None:
        if start is not None:
            cell = table[start:at].partition("</table>")[0].strip()
            rows[-1].append(_TRAILING.sub("", cell.replace("\n", " ")))

    for tag in _CELLS.finditer(table):
        end(tag.start())
        start = None
        if not tag[1]:
            if tag[2] == "tr" or not rows:
                rows.append([])
            if tag[2] != "tr":
                start = tag.end()
    end(len(table))
    return rows
