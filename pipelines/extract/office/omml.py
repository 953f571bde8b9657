"""Office equations (OMML, ISO/IEC 29500-1 chapter 22.1) as LaTeX, which people and language models read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_APPLICATION = "\u2061"  # the invisible sign between a function and its argument
_ACCENTS = {"\u0302": "hat", "\u0303": "tilde", "\u0305": "bar", "\u0307": "dot", "\u0308": "ddot", "\u20d7": "vec"}
_LARGE = {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∬": r"\iint", "∮": r"\oint", "⋃": r"\bigcup", "⋂": r"\bigcap"}


def latex(node: Any) -> str:
    """The equation below an `m:oMath` (or any part of one) as LaTeX; what is not known is read through."""
    return "".join(_one(child) for child in node).strip()


def _one(node: Any) -> str:
    if not isinstance(node.tag, str) or not node.tag.startswith(MATH):
        return ""
    name = node.tag.removeprefix(MATH)
    if name == "t":
        return (node.text or "").replace(_APPLICATION, " ")
    if name.endswith("Pr"):
        return ""
    known = _FORMS.get(name)
    return known(node) if known else "".join(_one(child) for child in node)


def _part(node: Any, name: str) -> str:
    found = node.find(MATH + name)
    return "" if found is None else latex(found)


def _property(node: Any, name: str, otherwise: str) -> str:
    found = node.find(f"{MATH}{node.tag.removeprefix(MATH)}Pr/{MATH}{name}")
    return otherwise if found is None else str(found.get(MATH + "val", ""))


def _scripts(node: Any) -> str:
    lower, upper = _part(node, "sub"), _part(node, "sup")
    return (f"_{{{lower}}}" if lower else "") + (f"^{{{upper}}}" if upper else "")


def _fraction(node: Any) -> str:
    return rf"\frac{{{_part(node, 'num')}}}{{{_part(node, 'den')}}}"


def _root(node: Any) -> str:
    degree = _part(node, "deg")
    return rf"\sqrt{f'[{degree}]' if degree else ''}{{{_part(node, 'e')}}}"


def _large(node: Any) -> str:
    sign = _property(node, "chr", "∫")
    return f"{_LARGE.get(sign, sign)}{_scripts(node)} {_part(node, 'e')}"


def _delimited(node: Any) -> str:
    inner = _property(node, "sepChr", "|").join(latex(part) for part in node.findall(MATH + "e"))
    return f"{_property(node, 'begChr', '(')}{inner}{_property(node, 'endChr', ')')}"


def _accent(node: Any) -> str:
    return rf"\{_ACCENTS.get(_property(node, 'chr', chr(0x302)), 'hat')}{{{_part(node, 'e')}}}"


def _matrix(node: Any) -> str:
    rows = [" & ".join(latex(cell) for cell in row.findall(MATH + "e")) for row in node.findall(MATH + "mr")]
    return r"\begin{matrix}" + r" \\ ".join(rows) + r"\end{matrix}"


_FORMS: dict[str, Callable[[Any], str]] = {
    "f": _fraction,
    "rad": _root,
    "nary": _large,
    "d": _delimited,
    "acc": _accent,
    "m": _matrix,
    "bar": lambda node: rf"\overline{{{_part(node, 'e')}}}",
    "eqArr": lambda node: r" \\ ".join(latex(line) for line in node.findall(MATH + "e")),
    "func": lambda node: f"{_part(node, 'fName')} {_part(node, 'e')}",
    "limLow": lambda node: f"{_part(node, 'e')}_{{{_part(node, 'lim')}}}",
    "limUpp": lambda node: f"{_part(node, 'e')}^{{{_part(node, 'lim')}}}",
    "sSup": lambda node: f"{_part(node, 'e')}{_scripts(node)}",
    "sSub": lambda node: f"{_part(node, 'e')}{_scripts(node)}",
    "sSubSup": lambda node: f"{_part(node, 'e')}{_scripts(node)}",
    "sPre": lambda node: f"{{}}{_scripts(node)}{_part(node, 'e')}",
}
