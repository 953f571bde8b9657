"""What a page says about itself to robots: its canonical address, and whether it wants to be found.

Only the head is looked at, and only as far as `HEAD_BYTES`, by a parser that is no C code: this is read outside of
the process for parsers. What stands in the body may have been written by anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

HEAD_BYTES = 256 * 2**10
_IN_HEAD = frozenset(
    {"html", "head", "title", "base", "basefont", "bgsound", "link", "meta", "style", "script", "noscript", "template"}
)
_WORDS = re.compile(r"[\s,]+")
_LINK = re.compile(r"<([^<>]*)>((?:[^,<\"]|\"[^\"]*\")*)")
_RELATION = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)
_AGENT = re.compile(r"\s*([A-Za-z_-]+)\s*:(.*)", re.DOTALL)
_VALUED = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a page says.

    Attributes:
        canonical: `href` of the first link of that relation, as it stands there.
        noindex: it does not want to be found, by anybody or by us.
    """

    canonical: str | None = None
    noindex: bool = False


class _Reader(HTMLParser):
    def __init__(self, agent: str) -> None:
        super().__init__(convert_charrefs=True)
        self.canonical: str | None = None
        self.noindex = False
        self.over = False
        self._agent = agent

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.over:
            return
        if tag not in _IN_HEAD:
            self.over = True
            return
        said = {name: value or "" for name, value in reversed(attrs)}
        if tag == "link" and "canonical" in said.get("rel", "").lower().split() and self.canonical is None:
            self.canonical = said.get("href")
        elif tag == "meta" and said.get("name", "").strip().lower() in ("robots", self._agent):
            self.noindex = self.noindex or _hides(said.get("content", ""))

    def handle_endtag(self, tag: str) -> None:
        self.over = self.over or tag == "head"


def head_of(path: Path, agent: str) -> Head:
    """What the head of an HTML file says.

    Args:
        agent: our name in lower case; what is said to it counts as what is said to all.
    """
    with path.open("rb") as file:
        text = _text(file.read(HEAD_BYTES))
    reader = _Reader(agent)
    for start in range(0, len(text), 4096):
        try:
            reader.feed(text[start : start + 4096])
        except AssertionError:  # how this parser calls a declaration that it cannot make out; the rest is lost to it
            break
        if reader.over:
            break
    return Head(reader.canonical, reader.noindex)


def canonical_link(values: Iterable[str]) -> str | None:
    """The target of `rel="canonical"` among `Link` headers (RFC 8288), if any."""
    for value in values:
        for target, parameters in _LINK.findall(value[:16_384]):
            relation = _RELATION.search(parameters)
            if relation and "canonical" in (relation[1] or relation[2] or "").lower().split():
                return str(target).strip()
    return None


def told_noindex(values: Iterable[str], agent: str) -> bool:
    """Whether one of the `X-Robots-Tag` headers keeps the page out, for all or for `agent`."""
    for value in values:
        named = _AGENT.match(value)
        if named and named[1].lower() not in _VALUED:
            if named[1].lower() == agent and _hides(named[2]):
                return True
        elif _hides(value):
            return True
    return False


def _hides(directives: str) -> bool:
    return not {"noindex", "none"}.isdisjoint(_WORDS.split(directives.lower()))


def _text(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start >= len(data) - 3:  # cut in the middle of a character
            return data[: error.start].decode("utf-8-sig")
        return data.decode("windows-1252", "replace")
