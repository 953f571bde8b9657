"""Word's XML made plain, so that a reader that knows only runs and paragraphs loses nothing.

Such a reader passes over what stands inside a wrapper: accepted insertions, content controls, smart tags,
text boxes, equations. Deletions are taken out, as a reader of the printed page would see it.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lxml import etree

from pipelines.extract.archive import entities_refused, entity_bomb
from pipelines.extract.office.omml import MATH, latex
from pipelines.types import Block

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_COMPATIBLE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_BODY = "word/document.xml"
_WRAPPERS = tuple(WORD + name for name in ("ins", "moveTo", "smartTag", "customXml", "fldSimple", "dir", "bdo"))
_GONE = tuple(WORD + name for name in ("del", "moveFrom"))
_PARAGRAPH, _BOX, _CONTROL, _LOOKS = (WORD + name for name in ("p", "txbxContent", "sdt", "rPr"))
_SEPARATORS = frozenset({"separator", "continuationSeparator", "continuationNotice"})


@contextmanager
def plain_word(path: Path) -> Iterator[Path]:
    """A temporary copy of a `.docx` with a plain body; the path itself where there is no body to be read."""
    root = member(path, _BODY)
    if root is None:
        yield path
        return
    _plain(root)
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        copy = Path(folder) / "document.docx"
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as written:
            for info in archive.infolist():
                content = etree.tostring(root) if info.filename == _BODY else archive.read(info)
                written.writestr(info.filename, content)
        yield copy


def notes(path: Path) -> Iterator[Block]:
    """Footnotes, endnotes and comments, which the body only refers to."""
    for name in ("word/footnotes.xml", "word/endnotes.xml", "word/comments.xml"):
        root = member(path, name)
        if root is None:
            continue
        _plain(root)
        for note in root.iter(WORD + "footnote", WORD + "endnote", WORD + "comment"):
            if note.get(WORD + "type") in _SEPARATORS:
                continue
            text = "\n".join(
                "".join(piece.text or "" for piece in paragraph.iter(WORD + "t")) for paragraph in note.iter(_PARAGRAPH)
            )
            if not text.strip():
                continue
            author = note.get(WORD + "author") or ""
            comment = note.tag == WORD + "comment"
            yield Block("list", f"Comment ({author}): {text.strip()}" if comment else text.strip())


def member(path: Path, name: str) -> Any:
    """One XML member, None where it is missing or not well-formed.

    Raises:
        PermanentError: `bomb`, where it uses XML entities of its own.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    with zipfile.ZipFile(path) as archive:
        if name not in archive.namelist():
            return None
        try:
            root = etree.fromstring(archive.read(name), parser)
        except etree.XMLSyntaxError as error:
            if bomb := entity_bomb(error):
                raise bomb from error
            return None
    if next(root.iter(etree.Entity), None) is not None:
        raise entities_refused()
    return root


def _plain(root: Any) -> None:
    for fallback in list(root.iter(_COMPATIBLE + "Fallback")):
        # The same content for older programs.
        if fallback.getparent().find(_COMPATIBLE + "Choice") is not None:
            _drop(fallback)
    for row in [mark.getparent().getparent() for mark in root.iterfind(f".//{WORD}trPr/{WORD}del")]:
        _drop(row)
    for gone in list(root.iter(*_GONE)):
        _drop(gone)
    for control in list(root.iter(_CONTROL)):
        gallery = control.find(f"{WORD}sdtPr//{WORD}docPartGallery")
        content = control.find(WORD + "sdtContent")
        # A table of contents repeats the headings.
        if content is None or (gallery is not None and gallery.get(WORD + "val") == "Table of Contents"):
            _drop(control)
        else:
            _replace(control, list(content))
    for wrapper in list(root.iter(*_WRAPPERS)):
        _replace(wrapper, list(wrapper))
    for ruby in list(root.iter(WORD + "ruby")):
        # Its pronunciation (`rt`) would stand between the words.
        bases = ruby.iterfind(f"{WORD}rubyBase//{WORD}r")
        _replace(ruby, [child for run in bases for child in run if child.tag != _LOOKS])
    for display in list(root.iter(MATH + "oMathPara")):
        _replace(display, [_run(f"$${latex(one)}$$") for one in display.iter(MATH + "oMath")])
    for inline in list(root.iter(MATH + "oMath")):
        _replace(inline, [_run(f"${latex(inline)}$")])
    # Innermost first: what a box inside a box holds comes out with it.
    for box in reversed(list(root.iter(_BOX))):
        host = next(box.iterancestors(_PARAGRAPH), None)
        if host is not None:
            for child in reversed(box):
                host.addnext(child)


def _run(text: str) -> Any:
    run = etree.Element(WORD + "r")
    etree.SubElement(run, WORD + "t").text = text
    return run


def _replace(node: Any, children: list[Any]) -> None:
    for child in children:
        node.addprevious(child)
    _drop(node)


def _drop(node: Any) -> None:
    parent = node.getparent()
    if parent is not None:
        parent.remove(node)
