"""RTF: decoded here, since its bytes mean what the font at that place says, then read by pandoc.

Pandoc takes every byte for Windows-1252, and ends at a brace that was never closed.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import PermanentError
from pipelines.extract.html import blocks_of
from pipelines.extract.job import Job
from pipelines.extract.markup import parse_page
from pipelines.extract.office.pandoc import convert_text
from pipelines.types import Extracted

_TOKEN = re.compile(
    rb"\\([a-z]{1,32})(-?\d{1,10})?[ ]?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)|.", re.I | re.S
)
_LEFT_OUT = frozenset({b"pict", b"objdata", b"themedata", b"colorschememapping", b"datastore", b"fontemb", b"blipuid"})
_CHARSETS = {
    0: "cp1252", 2: "symbol", 77: "mac_roman", 78: "cp932", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030",
    136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257",
    204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip
_PLATFORMS = {b"ansi": "cp1252", b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}
_DEEPEST = 2_000
_SPECIAL = {ord("\\"): "\\\\", ord("{"): "\\{", ord("}"): "\\}"}


def extract_rtf(job: Job) -> Extracted:
    """Paragraphs, headings by outline level, lists, tables and footnotes; title and author as metadata.

    Raises:
        PermanentError: `corrupt`.
    """
    decoder = RtfDecoder()
    page = convert_text(decoder.decode(job.path.read_bytes()), "rtf", "html")
    if not page.strip():
        return Extracted(job.mime, decoder.facts.pop("title", None), (), metadata=decoder.facts)
    tree, _ = parse_page(page)
    for back in tree.xpath("//a[@role='doc-backlink'] | //a[@role='doc-noteref']"):
        back.drop_tree()
    return Extracted(job.mime, decoder.facts.pop("title", None), tuple(blocks_of(tree)), metadata=decoder.facts)


@dataclass(slots=True)
class _Group:
    """What holds within one pair of braces.

    Attributes:
        encoding: of its bytes.
        fallback: characters that follow a `\\u` for older readers (`\\uc`).
        skip: left out: a picture, an embedded object, deleted text.
        font: the font that is being defined, in a font table.
        fact: the document property that is being given.
    """

    encoding: str
    fallback: int = 1
    skip: bool = False
    fonts: bool = False
    font: int | None = None
    fact: str = ""


@dataclass(slots=True)
class RtfDecoder:
    """Rewrites RTF so that every character stands for itself, and every group is closed.

    Attributes:
        facts: title, author and subject, as the document gives them.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    _charsets: dict[int, str] = field(default_factory=dict)
    _default: str = "cp1252"
    _default_font: int | None = None
    _out: list[str] = field(default_factory=list)
    _bytes: bytearray = field(default_factory=bytearray)
    _units: list[int] = field(default_factory=list)
    _pending: int = 0

    def decode(self, data: bytes) -> str:
        """The rewritten document; pictures, embedded objects and deleted text are left out."""
        stack = [_Group(self._default)]
        position = 0
        while match := _TOKEN.match(data, position):
            position = match.end()
            word, number, octet, symbol, brace, text = match.groups()
            group = stack[-1]
            if octet:
                self._take(group, bytes([int(octet, 16)]))
            elif text:
                self._take(group, text)
            elif word == b"u" and number:
                self._unit(group, int(number) & 0xFFFF)
            elif word == b"bin" and number:
                position += max(0, int(number))
            elif brace == b"{":
                self._settle(group)
                if len(stack) > _DEEPEST:
                    raise PermanentError("bomb", "the RTF is nested too deeply", "save it again as .docx")
                stack.append(_Group(group.encoding, group.fallback, group.skip, group.fonts, group.font, group.fact))
                self._write(group, "{")
            elif brace:
                self._settle(group)
                if len(stack) > 1:
                    self._write(stack[-2], "}")
                    stack.pop()
                if len(stack) == 1:
                    # The document ends here, as it does for Word; pandoc takes nothing behind it.
                    break
            elif word:
                self._settle(group)
                self._control(group, word.lower(), int(number) if number else None)
                # The space ends the word: what followed it, a code for a character, may now be a digit.
                # Pandoc ends at a document within the document.
                if word != b"ansicpg" and not (word == b"rtf" and len(stack) > 2):
                    self._write(group, f"\\{(word + (number or b'')).decode()} ")
            elif symbol and symbol not in b"\r\n":
                if symbol in b"\\{}":
                    self._take(group, symbol)
                else:
                    self._settle(group)
                    self._write(group, match[0].decode("latin-1"))
            elif symbol:
                self._settle(group)
                self._write(group, "\\par ")
        self._settle(stack[-1])
        return "".join(self._out) + "}" * sum(not group.skip for group in stack[1:])

    def _control(self, group: _Group, word: bytes, number: int | None) -> None:
        self._pending = 0
        if word in _LEFT_OUT or (word == b"deleted" and number != 0):
            group.skip = True
        elif word in _PLATFORMS:
            self._default = group.encoding = _PLATFORMS[word]
        elif word == b"ansicpg" and number:
            self._default = group.encoding = _known(f"cp{number}", self._default)
        elif word == b"deff":
            self._default_font = number
        elif word == b"fonttbl":
            group.fonts = True
        elif word == b"f" and number is not None and group.fonts:
            group.font = number
        elif word == b"fcharset" and number is not None and group.font is not None:
            known = _CHARSETS.get(number, self._default) if number > 1 else self._default
            self._charsets[group.font] = group.encoding = _known(known, self._default)
        elif word == b"f" and number is not None:
            group.encoding = self._charsets.get(number, self._default)
        elif word == b"plain":
            group.encoding = self._charsets.get(self._default_font or 0, self._default)
        elif word == b"uc" and number is not None:
            group.fallback = number
        elif word in {b"title", b"author", b"subject"}:
            group.fact = word.decode()

    def _take(self, group: _Group, content: bytes) -> None:
        skipped = min(self._pending, len(content))
        self._pending -= skipped
        content = content[skipped:]
        if content and not group.skip:
            self._flush_units(group)
            self._bytes += content

    def _unit(self, group: _Group, unit: int) -> None:
        if self._bytes:
            self._settle(group)
        self._units.append(unit)
        self._pending = group.fallback

    def _settle(self, group: _Group) -> None:
        """Write the characters gathered so far; a control word ends a run of bytes."""
        self._flush_units(group)
        if self._bytes:
            self._text(group, bytes(self._bytes).decode(group.encoding, "replace"))
            self._bytes.clear()
        self._pending = 0

    def _flush_units(self, group: _Group) -> None:
        if self._units:
            wide = b"".join(unit.to_bytes(2, "little") for unit in self._units)
            self._units.clear()
            self._text(group, wide.decode("utf-16-le", "replace"))

    def _text(self, group: _Group, text: str) -> None:
        if group.fact:
            self.facts[group.fact] = self.facts.get(group.fact, "") + text
        self._write(group, text.translate(_SPECIAL))

    def _write(self, group: _Group, text: str) -> None:
        if not group.skip:
            self._out.append(text)


def _known(name: str, otherwise: str) -> str:
    if name in {"symbol", "cp42"}:
        return "cp1252"
    try:
        return codecs.lookup({"cp10000": "mac_roman", "cp936": "gb18030", "cp65001": "utf-8"}.get(name, name)).name
    except LookupError:
        return otherwise
