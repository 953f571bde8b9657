"""Web pages: trafilatura parts the document from its page; a page that is all document is read whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from lxml import etree

from pipelines.errors import PermanentError
from pipelines.extract.job import Job
from pipelines.extract.markup import parse_page
from pipelines.extract.plain import read_text
from pipelines.extract.tables import table_text
from pipelines.extract.unseen import unseen_pieces
from pipelines.hidden import mark_pieces
from pipelines.types import Block, BlockKind, Extracted

_DECLARED = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([\w.:-]+)", re.I)
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "head", "iframe", "object",
     "select", "button", "input", "textarea"}
)  # fmt: skip
_FURNITURE = frozenset({"nav", "header", "footer", "aside", "form"})
_MARGINS = frozenset({"nav", "footer", "aside"})
_CONTAINERS = _FURNITURE | {
    "html", "body", "div", "section", "article", "main", "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul",
    "ol", "li", "dl", "dt", "dd", "blockquote", "figure", "figcaption", "address", "details", "summary",
    "center", "fieldset", "hr", "pre", "table", "caption", "tbody", "tr", "th", "td", "list", "item",
    "head", "quote", "row",
}  # fmt: skip
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_TABLE_RULE = re.compile(r"^\|(?: --- \|)+$", re.MULTILINE)
_LITTLE = 100
_DATES = {"original_date": True}
_MOSTLY_LINKS = 0.4


def extract_html(job: Job) -> Extracted:
    """Blocks of the main content, with title, author and date where the page names them."""
    with job.path.open("rb") as file:
        found = _DECLARED.search(file.read(4096))
    declared = next((group.decode("ascii") for group in found.groups() if group), None) if found else None
    text, encoding = read_text(job.path, declared)
    title, blocks, metadata = read_html(text)
    return Extracted(job.mime, title, tuple(blocks), metadata={"encoding": encoding, **metadata})


def read_html(text: str) -> tuple[str | None, list[Block], dict[str, Any]]:
    """Title, blocks and metadata of a page given as text.

    Trafilatura decides what is content. Where it returns little, or where the page has neither navigation
    nor many links (an export, a manual, a note: nothing to strip), every visible word outside the margins is kept.
    """
    import trafilatura
    from trafilatura.metadata import extract_metadata
    from trafilatura.settings import Document

    text = _XML_DECLARATION.sub("", text)
    try:
        tree, levelled = parse_page(text)
    except (etree.ParserError, ValueError) as error:
        raise PermanentError("no_text", "the page holds no text", "nothing to do if it is blank on purpose") from error
    hidden = unseen_pieces(tree)
    whole = list(blocks_of(tree, leave_out=_MARGINS)) or list(blocks_of(tree))
    # Its own parser would lose what ours has kept.
    page = deepcopy(tree) if levelled else text
    document = trafilatura.bare_extraction(
        page, include_comments=False, include_tables=True, with_metadata=True, date_extraction_params=_DATES
    )
    main: list[Block] = []
    if isinstance(document, Document):
        main = list(blocks_of(document.body))
    else:
        document = extract_metadata(page, date_config=_DATES)
    if _is_all_document(tree) or sum(len(block.text) for block in main) < _LITTLE:
        main = _without_link_margins(whole, tree)
    metadata = _metadata(tree, document)
    # From a year anywhere on the page (`© 2022`) its first day is guessed.
    if (metadata["date"] or "").endswith("-01-01") and metadata["date"] not in text:
        metadata["date"] = None
    return document.title or tree.findtext(".//title"), mark_pieces(main, *hidden), metadata


def _metadata(tree: Any, document: Any) -> dict[str, Any]:
    canonical = tree.xpath("string(//link[@rel='canonical']/@href)") or document.url or ""
    return {
        "author": document.author,
        "date": document.date,
        "site": document.sitename,
        "url": canonical.strip() if canonical.strip().startswith(("http://", "https://")) else None,
        "description": document.description,
        "lang": tree.get("lang") or document.language,
    }


def _without_link_margins(blocks: list[Block], tree: Any) -> list[Block]:
    """The blocks from the first that is more than a link to the last: what is before and after are ways out."""
    linked = {" ".join(link.text_content().split()) for link in tree.iter("a")}

    def says(block: Block) -> bool:
        lines = _TABLE_RULE.sub("", block.text).split("|") if block.kind == "table" else [block.text]
        return any(line.strip() and " ".join(line.split()) not in linked for line in lines)

    kept = [index for index, block in enumerate(blocks) if says(block)]
    return blocks[kept[0] : kept[-1] + 1] if kept else blocks


def read_whole(text: str) -> list[Block]:
    """Every visible word of a page, margins included; for markup that is all document, as that of a mail."""
    try:
        tree = parse_page(_XML_DECLARATION.sub("", text))[0]
        return mark_pieces(list(blocks_of(tree)), *unseen_pieces(tree))
    except (etree.ParserError, ValueError):
        return []


def _is_all_document(tree: Any) -> bool:
    if next(tree.iter(*_FURNITURE), None) is not None:
        return False
    words = len("".join(tree.xpath("//body//text()[not(ancestor::script or ancestor::style)]")).split())
    linked = len("".join(tree.xpath("//body//a//text()")).split())
    return linked <= words * _MOSTLY_LINKS and next(tree.iter("script"), None) is None


def blocks_of(element: Any, leave_out: frozenset[str] = frozenset()) -> Iterator[Block]:
    """Walk HTML, or trafilatura's TEI-like elements, in reading order; loose text gathers into paragraphs."""
    loose: list[str] = []

    def settle(kind: BlockKind) -> Iterator[Block]:
        text = "".join(loose)
        loose.clear()
        if text.strip():
            yield Block(kind, text)

    def walk(node: Any, kind: BlockKind) -> Iterator[Block]:
        if not isinstance(node.tag, str) or (node.tag in _SKIPPED and not node.get("rend")):
            return
        tag = node.tag
        if tag in leave_out:
            return
        level = _HEADINGS.get(node.get("rend", "") if tag == "head" else tag, 0)
        if level:
            yield from settle(kind)
            yield Block("heading", _inline(node), level=level)
            return
        if tag == "table":
            yield from settle(kind)
            yield from _table(node)
            return
        if tag == "pre" or (tag == "code" and "\n" in "".join(node.itertext()).strip()):
            yield from settle(kind)
            yield Block("code", _inline(node, keep_space=True))
            return
        if tag in {"br", "lb"}:
            loose.append("\n")
            return
        inner: BlockKind = "list" if tag in {"li", "item", "dt", "dd"} else kind
        container = tag in _CONTAINERS
        if container:
            yield from settle(kind)
        loose.append(_flat(node.text))
        for child in node:
            yield from walk(child, inner)
            loose.append(_flat(child.tail))
        if container:
            yield from settle(inner)

    if element is not None:
        yield from walk(element, "paragraph")
        yield from settle("paragraph")


def _table(node: Any) -> Iterator[Block]:
    rows = [
        [_inline(cell) for cell in row if cell.tag in {"td", "th", "cell"}]
        for row in node.iter("tr", "row")
        if next(row.iterancestors("table"), None) is node
    ]
    cells = [cell for row in rows for cell in row if cell.strip()]
    # A table with one cell, or with tables inside, lays out a page: read it as text.
    if len(cells) <= 1 or node.find(".//table") is not None:
        for row in node.iter("td", "th", "cell"):
            if next(row.iterancestors("table"), None) is node:
                yield from _blocks_of_cell(row)
        return
    yield Block("table", table_text(rows))


def _blocks_of_cell(cell: Any) -> Iterator[Block]:
    yield from blocks_of(cell)


def _inline(node: Any, *, keep_space: bool = False) -> str:
    parts: list[str] = []

    def walk(inner: Any) -> None:
        if not isinstance(inner.tag, str) or (inner.tag in _SKIPPED and not inner.get("rend")):
            return
        if inner.tag in {"br", "lb"}:
            parts.append("\n")
        elif inner.tag in _CONTAINERS and inner is not node:
            parts.append(" ")
        parts.append(inner.text or "" if keep_space else _flat(inner.text))
        for child in inner:
            walk(child)
            parts.append(child.tail or "" if keep_space else _flat(child.tail))

    walk(node)
    return "".join(parts)


def _flat(text: str | None) -> str:
    return re.sub(r"\s+", " ", text) if text else ""
