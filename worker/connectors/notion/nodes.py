"""A page's content as a tree, and the plain Markdown that it becomes.

Both ways to a page's content, the enhanced Markdown and the blocks, end here, so that both give the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

Kind = Literal["paragraph", "heading", "bullet", "number", "quote", "code", "table", "divider", "group", "part"]

DEEPEST = 6
"""Levels of lists and quotes that are shown; CommonMark parsers stop at about twice as many and drop the rest."""

BREAK = "\\\n"
_LISTS = ("bullet", "number")
_SPECIAL = re.compile(r"([\\`*_~\[\]<>|&])")
_START = re.compile(r"^(\s*)([#+=-]|\d{1,9}[.)](?=\s|$)|:{3})")
_SIGNED = re.compile(r"[?&](?:x-amz-|signature=|sig=|exp=|expires|token=|policy=)", re.IGNORECASE)


@dataclass(slots=True)
class Node:
    """One block.

    Attributes:
        text: Markdown of one line or, with `BREAK`, more; of `code` as it is; of a `part`, its block id.
        note: the language of `code`; what a `part` is said to be.
        level: of a heading, 1 to 6.
        rows: of a table, in Markdown.
        children: what lies below it; shown at the same level where Markdown has nothing for it.
    """

    kind: Kind
    text: str = ""
    note: str = ""
    level: int = 1
    rows: list[list[str]] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """All nodes, each before what lies below it."""
    stack = list(reversed(nodes))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def render(nodes: Sequence[Node]) -> str:
    """Plain Markdown (CommonMark with tables), ending in a line break; empty where there is nothing."""
    lines = _lines(_flat(nodes), 0)
    return "\n".join(lines) + "\n" if lines else ""


def escape(text: str) -> str:
    """Text as Markdown that means just that; line breaks stay what they are."""
    lines = (_SPECIAL.sub(r"\\\1", line) for line in text.replace("\r\n", "\n").split("\n"))
    return BREAK.join(map(escape_start, lines))


def escape_start(line: str) -> str:
    """A line that does not begin a list, a heading or a rule."""
    found = _START.match(line)
    if found is None:
        return line
    mark = found[2]
    escaped = f"{mark[:-1]}\\{mark[-1]}" if mark[0].isdigit() else f"\\{mark}"
    return found[1] + escaped + line[found.end() :]


def trimmed(text: str) -> str:
    """Markdown without line breaks and spaces at its ends, and without spaces around its breaks."""
    lines = [line.strip() for line in text.split(BREAK)]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return BREAK.join(lines)


def code_span(text: str) -> str:
    """Text as inline code, whatever backticks it has."""
    text = " ".join(text.split("\n"))
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text.strip() else text


def link(label: str, url: str) -> str:
    """A link; `label` is Markdown. Where the address is signed, and so new each time, the label alone."""
    if not url or _SIGNED.search(url):
        return label
    url = url.replace("\n", "").replace("<", "%3C").replace(">", "%3E")
    target = f"<{url}>" if re.search(r"[\s()]", url) else url
    return f"[{label}]({target})"


def file_name(url: str) -> str:
    """What a file is called by its address."""
    return unquote(urlsplit(url).path).rstrip("/").rsplit("/", 1)[-1]


def media(kind: str, url: str, caption: str, name: str = "", lasting: bool = True) -> str:
    """An image by its description, other files by name and description, linked where the address lasts.

    Args:
        kind: `image`, `file`, `pdf`, `video`, `audio`.
        caption: Markdown, may be empty.
        name: unset: as the address says.
        lasting: the address is the same at the next visit.
    """
    caption = caption.replace(BREAK, " ").strip()
    label = escape(name or file_name(url))
    target = url if lasting else ""
    if kind == "image":
        return link(caption or label, target)
    text = link(label or caption, target)
    return f"{text}: {caption}" if caption and label and caption != label else text


def _flat(nodes: Sequence[Node]) -> Iterator[Node]:
    """Groups replaced by what is in them."""
    for node in nodes:
        if node.kind in ("group", "part"):
            yield from _flat(node.children)
        else:
            yield node


def _lines(nodes: Iterator[Node], depth: int) -> list[str]:
    lines: list[str] = []
    last: Node | None = None
    number = 0
    for node in nodes:
        number = number + 1 if node.kind == "number" and last is not None and last.kind == "number" else 1
        own = _own(node, number, depth)
        if not own:
            continue
        if last is not None and not (node.kind == last.kind and node.kind in _LISTS):
            lines.append("")
        lines += own
        last = node
    return lines


def _own(node: Node, number: int, depth: int) -> list[str]:
    deep = depth >= DEEPEST
    if node.kind in _LISTS:
        mark = "- " if node.kind == "bullet" else f"{number}. "
        below = _lines(_flat(node.children), depth + 1)
        first = node.text.split("\n") if node.text.strip() else []
        if deep:  # as one long list: the words count, not the indentation
            return [*_indented(first, mark), *_separated(below, bool(first))]
        tight = bool(node.children) and all(child.kind in _LISTS for child in _flat(node.children))
        inner = [*first, *(below if tight else _separated(below, bool(first)))]
        return _indented(inner, mark)
    if node.kind == "quote":
        below = _lines(_flat(node.children), depth + 1)
        first = node.text.split("\n") if node.text.strip() else []
        inner = [*first, *_separated(below, bool(first))]
        return inner if deep else [f"> {line}".rstrip() for line in inner]
    own = _leaf(node)
    return [*own, *_separated(_lines(_flat(node.children), depth), bool(own))]


def _leaf(node: Node) -> list[str]:
    if node.kind == "divider":
        return ["---"]
    if node.kind == "code":
        if not node.text.strip():
            return []
        longest = max((len(run) for run in re.findall(r"`{3,}", node.text)), default=2)
        fence = "`" * (longest + 1)
        return [fence + re.sub(r"[^\w+#.-].*", "", node.note), *node.text.split("\n"), fence]
    if node.kind == "table":
        width = max(map(len, node.rows), default=0)
        rows = [[*row, *[""] * (width - len(row))] for row in node.rows]
        if not any(cell.strip() for row in rows for cell in row):
            return []
        shown = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        return [shown[0], "|" + " --- |" * width, *shown[1:]]
    if not node.text.strip():
        return []
    if node.kind == "heading":
        return [f"{'#' * node.level} {node.text.replace(BREAK, ' ').strip()}"]
    return node.text.split("\n")


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace(BREAK, " ").replace("\n", " ")).strip()


def _separated(below: list[str], needed: bool) -> list[str]:
    return ["", *below] if needed and below else below


def _indented(lines: Sequence[str], mark: str) -> list[str]:
    if not lines:
        return []
    space = " " * len(mark)
    return [mark + lines[0], *(space + line if line else "" for line in lines[1:])]
