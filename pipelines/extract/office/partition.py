"""The one door to `unstructured`: offline, without telemetry, and its elements as our blocks.

`unstructured` classifies text with spaCy, downloads a model for it when first asked, and loads all of spaCy
before. None of our decisions rests on that classification, so its tokeniser module is replaced by plain
rules before anything imports it.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from lxml import html as lxml_html

from pipelines.extract.tables import table_text
from pipelines.types import Block

_TOKENIZER = "unstructured.nlp.tokenize"
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"\w+|[^\w\s]")
_LEFT_OUT = frozenset({"Header", "Footer", "PageBreak", "PageNumber", "Image"})


def partition(kind: str, **arguments: Any) -> list[Any]:
    """Call `unstructured.partition.<kind>.partition_<kind>` and return its elements."""
    prepare()
    module = importlib.import_module(f"unstructured.partition.{kind}")
    elements: list[Any] = getattr(module, f"partition_{kind}")(languages=[""], **arguments)
    return elements


def prepare() -> None:
    """Switch telemetry off and put our tokeniser in spaCy's place; before the first partition."""
    os.environ.update(DO_NOT_TRACK="1", SCARF_NO_ANALYTICS="1", UNSTRUCTURED_DISABLE_NOTICE="1")
    if _TOKENIZER not in sys.modules:
        module = ModuleType(_TOKENIZER, "Rules in place of the spaCy model.")
        vars(module).update(
            sent_tokenize=lambda text: [part for part in _SENTENCE.split(str(text)) if part],
            word_tokenize=lambda text: _WORD.findall(str(text)),
            pos_tag=lambda text: [(word, "") for word in _WORD.findall(str(text))],
        )
        sys.modules[_TOKENIZER] = module


def to_blocks(elements: Iterable[Any], *, headings: range = range(6), paged: bool = False) -> Iterator[Block]:
    """Elements as blocks; running headers, footers and pictures are left out.

    Args:
        headings: category depths at which a `Title` is a heading; elsewhere it is a guess from its looks.
        paged: whether `page_number` counts something a reader can turn to.
    """
    for element in elements:
        kind = type(element).__name__
        if kind in _LEFT_OUT or not element.text:
            continue
        page = element.metadata.page_number if paged else None
        depth = element.metadata.category_depth
        if kind == "Title" and depth in headings:
            yield Block("heading", element.text, level=min(depth + 1, 6), page=page)
        elif kind == "Table":
            yield Block("table", table_of(element), page=page)
        elif kind == "CodeSnippet":
            yield Block("code", element.text, page=page)
        elif kind == "ListItem":
            yield Block("list", element.text, page=page)
        else:
            yield Block("paragraph", element.text, page=page)


def table_of(element: Any) -> str:
    """The text of a table element, row by row."""
    markup = element.metadata.text_as_html
    if not markup:
        return str(element.text)
    rows = lxml_html.fragment_fromstring(markup, create_parent="div").iter("tr")
    return table_text([[cell.text_content() for cell in row.iter("td", "th")] for row in rows])
