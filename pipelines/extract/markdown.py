"""Markdown: headings, paragraphs, list items, tables and code as blocks, without their markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from pipelines.extract.job import Job
from pipelines.extract.plain import read_text
from pipelines.extract.tables import table_text
from pipelines.types import Block, BlockKind, Extracted

_FRONT_MATTER = re.compile(r"\A---[^\S\n]*\n(.*?)\n(?:---|\.\.\.)[^\S\n]*(?:\n|\Z)", re.DOTALL)
_SCALAR = re.compile(r"^(title|author|date|lang|description|tags|keywords)[^\S\n]*:[^\S\n]*(\S.*)$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>", re.DOTALL)


def extract_markdown(job: Job) -> Extracted:
    """Read CommonMark with tables; a YAML front matter gives title and metadata and is not text."""
    text, encoding = read_text(job.path)
    metadata: dict[str, Any] = {"encoding": encoding}
    front = _FRONT_MATTER.match(text)
    if front:
        metadata |= {key: value.strip().strip("\"'") for key, value in _SCALAR.findall(front[1])}
        text = text[front.end() :]
    title = metadata.pop("title", None)
    return Extracted(job.mime, title, tuple(markdown_blocks(text)), metadata=metadata)


def markdown_blocks(text: str) -> list[Block]:
    """The blocks of a Markdown text, in order; code blocks and tables whole, each list item for itself."""
    blocks: list[Block] = []
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    depth = 0
    rows: list[list[str]] = []
    heading = 0
    in_table = False
    for token in tokens:
        match token.type:
            case "heading_open":
                heading = int(token.tag[1:])
            case "heading_close":
                heading = 0
            case "list_item_open":
                depth += 1
            case "list_item_close":
                depth -= 1
            case "fence" | "code_block":
                blocks.append(Block("code", token.content))
            case "table_open":
                in_table, rows = True, []
            case "table_close":
                in_table = False
                blocks.append(Block("table", table_text(rows)))
            case "tr_open":
                rows.append([])
            case "html_block":
                blocks.append(Block("paragraph", _TAG.sub(" ", token.content)))
            case "inline":
                content = inline_text(token.children or ())
                if in_table:
                    rows[-1].append(content)
                elif heading:
                    blocks.append(Block("heading", content, level=heading))
                else:
                    kind: BlockKind = "list" if depth else "paragraph"
                    blocks.append(Block(kind, content))
            case _:
                pass
    return [block for block in blocks if block.text.strip()]


def inline_text(tokens: Sequence[Token]) -> str:
    """The words of inline tokens: emphasis and links without their marks, images by their description."""
    parts = []
    for token in tokens:
        if token.type in {"text", "code_inline", "image"}:
            parts.append(token.content)
        elif token.type == "softbreak":
            parts.append(" ")
        elif token.type == "hardbreak":
            parts.append("\n")
    return "".join(parts)
