"""HTML as a tree, however deep its elements lie in each other and however long its texts are."""

from __future__ import annotations

import re
from typing import Any

from lxml import etree
from lxml import html as lxml_html

DEEPEST = 200
_LAST_TABLE = 150  # below this level, tables are no more than text: their cells would lie too deep
_LIMIT = "ERR_RESOURCE_LIMIT"
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_INLINE = frozenset(
    {
        "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "img", "ins", "kbd",
        "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr",
    }
)  # fmt: skip
_TABLE = frozenset({"table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption", "colgroup", "col"})
_UNSEEN = frozenset({"script", "style", "noscript", "template", "head", "title", "textarea", "select"})


def parse_page(text: str) -> tuple[Any, bool]:
    """A page as a tree of `lxml.html`, and whether its deepest elements had to be laid side by side for it.

    libxml2 stops without a word at 256 elements in each other, or at a text of ten million characters, and has
    then lost the rest. Such a page is read again, event by event, which has neither limit.

    Raises:
        lxml.etree.ParserError, ValueError: it holds no element.
    """
    parser = lxml_html.HTMLParser()
    try:
        tree = lxml_html.document_fromstring(text, parser=parser)
    except etree.ParserError:
        if not _gave_up(parser):
            raise
    else:
        if not _gave_up(parser):
            return tree, False
    levels = lxml_html.HTMLParser(huge_tree=True, target=_Levels())
    levels.feed(text)
    return levels.close(), True


def _gave_up(parser: Any) -> bool:
    last = parser.error_log.last_error
    return last is not None and last.type_name == _LIMIT


class _Levels:
    """Builds a tree of `DEEPEST` levels; what lies deeper becomes text of the last, parted where its elements part.

    Whoever walks the tree may then do so by recursion, as `trafilatura` does.
    """

    def __init__(self) -> None:
        self._root = lxml_html.html_parser.makeelement("html")
        self._open = [self._root]
        self._deeper: list[str] = []
        self._undone = 0
        self._unseen = 0
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._open) < DEEPEST:
            self._settle()
            self._open.append(self._root if tag == "html" else etree.SubElement(self._open[-1], self._name(tag)))
            for name, value in attributes.items():
                if _NAME.fullmatch(name):
                    self._open[-1].set(name, _NO_XML.sub("", value))
            return
        self._deeper.append(tag)
        self._unseen += tag in _UNSEEN
        self._part(tag)

    def end(self, tag: str) -> None:
        if self._deeper:
            self._unseen -= self._deeper.pop() in _UNSEEN
            self._part(tag)
        elif len(self._open) > 1:
            self._settle()
            self._open.pop()
            if len(self._open) <= self._undone:
                self._undone = 0

    def data(self, text: str) -> None:
        if not self._unseen:
            self._text.append(_NO_XML.sub("", text))

    def close(self) -> Any:
        self._settle()
        return self._root

    def _part(self, tag: str) -> None:
        if self._text and tag not in _INLINE:
            self._settle()
            etree.SubElement(self._open[-1], "br" if tag == "br" else "div")

    def _settle(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if not text:
            return
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text

    def _name(self, tag: str) -> str:
        if tag == "table" and len(self._open) >= _LAST_TABLE and not self._undone:
            self._undone = len(self._open)
        if self._undone and tag in _TABLE:
            return "div"
        return tag if _NAME.fullmatch(tag) else "span"
