"""Which texts of a Word or OpenDocument text its readers do not see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.extract.office.word import WORD, member
from pipelines.hidden import NOT_DISPLAYED, TINY, WHITE

_WHITES = frozenset({"FFFFFF", "FFFFFE", "FEFEFE", "FDFDFD"})
_CLEAR = frozenset({None, "", "AUTO", "FFFFFF"})
_SMALLEST = 2  # half-points
_URN = "{{urn:oasis:names:tc:opendocument:xmlns:{}:1.0}}"
_STYLE, _FO, _TEXT = (_URN.format(name) for name in ("style", "xsl-fo-compatible", "text"))


def word_pieces(path: Path) -> list[tuple[str, str]]:
    """Hidden texts of a `.docx` with their kinds: hidden font, white on white, smaller than a point."""
    root = member(path, "word/document.xml")
    if root is None:
        return []
    pieces: list[tuple[str, str]] = []
    for paragraph in root.iter(WORD + "p"):
        texts: dict[str, list[str]] = {}
        for run in paragraph.iter(WORD + "r"):
            looks = run.find(WORD + "rPr")
            if looks is not None and (kind := _kind(looks, run)):
                texts.setdefault(kind, []).extend(text.text or "" for text in run.iter(WORD + "t"))
        pieces += [("".join(parts), kind) for kind, parts in texts.items()]
    return pieces


def _kind(looks: Any, run: Any) -> str | None:
    hidden = looks.find(WORD + "vanish")
    if hidden is not None and hidden.get(WORD + "val") not in {"0", "false", "off"}:
        return NOT_DISPLAYED
    size = looks.find(WORD + "sz")
    if size is not None and (size.get(WORD + "val") or "").isdecimal() and int(size.get(WORD + "val")) < _SMALLEST:
        return TINY
    colour = looks.find(WORD + "color")
    if colour is not None and (colour.get(WORD + "val") or "").upper() in _WHITES and not _on_colour(looks, run):
        return WHITE
    return None


def _on_colour(looks: Any, run: Any) -> bool:
    """Whether there is, or may be, a colour behind a run: of its own, its paragraph's, a cell's, a shape's."""
    if looks.find(WORD + "highlight") is not None:
        return True
    for shade in (looks.find(WORD + "shd"), *(one.find(f"{one.tag}Pr/{WORD}shd") for one in run.iterancestors())):
        if shade is not None and (shade.get(WORD + "fill") or "").upper() not in _CLEAR:
            return True
    boxed = next(run.iterancestors(WORD + "txbxContent"), None) is not None
    table = next(run.iterancestors(WORD + "tbl"), None)
    styled = table is not None and table.find(f"{WORD}tblPr/{WORD}tblStyle") is not None
    return boxed or styled or run.getroottree().find(WORD + "background") is not None


def text_pieces(path: Path) -> list[tuple[str, str]]:
    """Hidden texts of an `.odt` with their kinds, by the styles its content defines for itself."""
    root = member(path, "content.xml")
    kinds = dict(_hiding_styles(root)) if root is not None else {}
    if not kinds:
        return []
    return [
        ("".join(node.itertext()), kind)
        for node in root.iter(_TEXT + "span", _TEXT + "p", _TEXT + "h")
        if (kind := kinds.get(node.get(_TEXT + "style-name")))
    ]


def _hiding_styles(root: Any) -> Iterator[tuple[str, str]]:
    for style in root.iter(_STYLE + "style"):
        looks = style.find(_STYLE + "text-properties")
        if looks is None:
            continue
        size = looks.get(_FO + "font-size") or ""
        ground = looks.get(_FO + "background-color")
        if looks.get(_TEXT + "display") == "none":
            yield style.get(_STYLE + "name"), NOT_DISPLAYED
        elif size.endswith("pt") and size[:-2].replace(".", "", 1).isdecimal() and float(size[:-2]) < 1:
            yield style.get(_STYLE + "name"), TINY
        elif (looks.get(_FO + "color") or "")[1:].upper() in _WHITES and ground in {None, "transparent", "#ffffff"}:
            yield style.get(_STYLE + "name"), WHITE
