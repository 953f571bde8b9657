"""Which texts of a web page its readers do not see, by what its elements and its own style sheets say."""

from __future__ import annotations

import re
from typing import Any

from pipelines.hidden import NOT_DISPLAYED, OUTSIDE, TINY, TRANSPARENT, WHITE

_NO_TEXT = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "textarea"})
_AT_RULE = re.compile(r"@[^{};@]*+\{(?:[^{}]*+\{[^{}]*+\})*+[^{}]*+\}|@[^{};@]*+;")
_SELECTOR = re.compile(r"[.#][\w-]+")
_NAME = re.compile(r"[.#]([\w-]+)")
_LARGEST_SHEET = 300_000  # characters
_LONGEST_VALUE = 80
_FAR = re.compile(r"-\s*(?:\d{4,}(?:\.\d*)?px|\d{3,}(?:\.\d*)?(?:em|rem|vw|vh|%))")
_SMALL = re.compile(r"\+?(0*\.?\d+(?:\.\d+)?)(px|pt|em|rem|%|)")
_SMALLEST = {"px": 1.0, "pt": 1.0, "em": 0.1, "rem": 0.1, "%": 10.0, "": 0.5}
_NO_OPACITY = re.compile(r"0+(?:\.0?|\.0[0-4]\d*)?|\.0[0-4]?\d*|0*[0-4](?:\.\d*)?%")
_HEX = re.compile(r"#([0-9a-f]{3,8})")
_RGB = re.compile(r"rgba?\(\s*(\d{1,3})\s*[, ]\s*(\d{1,3})\s*[, ]\s*(\d{1,3})\s*(?:[,/]\s*([\d.]+%?)\s*)?\)")
_NAMED = {"white": (255, 255, 255), "black": (0, 0, 0), "snow": (255, 250, 250), "ivory": (255, 255, 240)}
_NEAR = 30  # of 765: no eye tells them apart
_Colour = tuple[int, int, int]
_Style = dict[str, str]


def unseen_pieces(tree: Any) -> tuple[list[tuple[str, str]], str]:
    """Hidden texts of a page with their kinds, and all text that is seen.

    `aria-hidden` says nothing: it is for what people see and a voice need not read. Comments are never text.
    """
    page = _Page(tree)
    page.visit(tree, None, False)
    return page.hidden, "".join(page.seen)


class _Page:
    def __init__(self, tree: Any) -> None:
        self.hidden: list[tuple[str, str]] = []
        self.seen: list[str] = []
        sheets = "\n".join(node.text or "" for node in tree.iter("style"))[:_LARGEST_SHEET]
        self._rules = _hiding_rules(sheets) if "{" in sheets else {}
        # A class may give a background that is not seen here: white text on it is then nobody's secret.
        self._styled = "background" in sheets or next(tree.iter("link"), None) is not None

    def visit(self, node: Any, ground: _Colour | str | None, inside: bool) -> None:
        """Take in an element and what is in it.

        Args:
            ground: the background it stands on: a colour, None for the page's own, `?` where it cannot be known.
            inside: whether it lies in one that is hidden.
        """
        if not isinstance(node.tag, str) or node.tag in _NO_TEXT:
            return
        if not inside and node.attrib:
            style = self._style(node)
            ground = self._ground(node, style, ground)
            kind = _kind(node, style, ground)
            if kind is not None:
                inside = True
                # The whole of it, and each text by itself: a reader of the page may have parted or joined them.
                texts = [text for text in node.itertext() if text.strip()]
                self.hidden += [(text, kind) for text in {"".join(texts), *texts}]
        if not inside and node.text:
            self.seen.append(node.text)
        for child in node:
            self.visit(child, ground, inside)
            if not inside and child.tail:
                self.seen.append(child.tail)

    def _style(self, node: Any) -> _Style:
        style: _Style = {}
        if self._rules:
            names = [f".{name}" for name in (node.get("class") or "").split()]
            for name in (*names, f"#{node.get('id')}"):
                style |= self._rules.get(name, {})
        return style | _declarations(node.get("style") or "")

    def _ground(self, node: Any, style: _Style, ground: _Colour | str | None) -> _Colour | str | None:
        said = style.get("background-color") or style.get("background") or node.get("bgcolor")
        if said and said.strip() not in {"none", "transparent", "inherit"}:
            return _colour(said.strip().lower().split(" ")[0] if "(" not in said else said.strip().lower()) or "?"
        if node.get("background") or style.get("background-image"):
            return "?"
        if self._styled and (node.get("class") or node.get("id")):
            return "?"
        return ground


def _declarations(text: str) -> _Style:
    pairs = (one.replace("!important", "").partition(":") for one in text.lower().split(";"))
    return {name.strip(): value.strip()[:_LONGEST_VALUE] for name, _, value in pairs if value.strip()}


def _hiding_rules(sheets: str) -> dict[str, _Style]:
    """What simple selectors (`.a`, `#b`) hide in every state; those of `@media` are of a state."""
    rules: dict[str, _Style] = {}
    shown: set[str] = set()
    before, *commented = sheets.split("/*")
    plain = before + "".join(one.partition("*/")[2] for one in commented)
    for rule in _AT_RULE.sub("", plain).split("}"):
        selectors, _, body = rule.partition("{")
        style = _declarations(body)
        hides = _hides(style)
        for selector in map(str.strip, selectors.split(",")):
            if hides and _SELECTOR.fullmatch(selector):
                rules.setdefault(selector, {}).update(style)
            elif not hides and not style.keys().isdisjoint({"display", "visibility", "opacity"}):
                # `.tab.active` or `.menu:hover .entry`: something a reader does will show it.
                shown.update(selector[found.start()] + found.group(1) for found in _NAME.finditer(selector))
    return {name: style for name, style in rules.items() if name not in shown}


def _hides(style: _Style) -> str | None:
    """The kind of hidden text that a style makes by itself."""
    if style.get("display") == "none" or style.get("visibility") in {"hidden", "collapse"}:
        return NOT_DISPLAYED
    if _NO_OPACITY.fullmatch(style.get("opacity", "")):
        return TRANSPARENT
    size = _SMALL.fullmatch(style.get("font-size", ""))
    if size and float(size.group(1)) < _SMALLEST[size.group(2)]:
        return TINY
    places = [style.get("text-indent", "")]
    if style.get("position") in {"absolute", "fixed"}:
        places += [style.get(side, "") for side in ("left", "top", "right", "bottom")]
    places += [style.get(name, "") for name in ("margin-left", "margin-top") if name in style]
    return OUTSIDE if any(map(_FAR.match, places)) else None


def _kind(node: Any, style: _Style, ground: _Colour | str | None) -> str | None:
    if node.get("hidden") is not None and style.get("display", "none") == "none":
        return NOT_DISPLAYED
    if kind := _hides(style):
        return kind
    said = style.get("color") or (node.get("color") if node.tag == "font" else None)
    if not said:
        return None
    colour = _colour(said.strip().lower())
    if colour is None:
        return TRANSPARENT if said.strip() == "transparent" else None
    on = (255, 255, 255) if ground is None else ground
    if isinstance(on, str):
        return None
    return WHITE if sum(abs(one - other) for one, other in zip(colour, on, strict=True)) <= _NEAR else None


def _colour(text: str) -> _Colour | None:
    if found := _HEX.fullmatch(text):
        digits = found.group(1)
        if len(digits) in {3, 4}:
            digits = "".join(digit * 2 for digit in digits)
        if len(digits) not in {6, 8}:
            return None
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:6], 16)
    if found := _RGB.fullmatch(text):
        red, green, blue = (min(int(part), 255) for part in found.groups()[:3])
        return red, green, blue
    return _NAMED.get(text)
