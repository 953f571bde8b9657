"""Which title a document has: its own, where that is a title at all, else its first top heading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.sanitise import sanitise_line
from pipelines.types import Block

_MEANINGLESS = re.compile(
    r"^(?:untitled|unbenannt|sans[ -]titre|sin t[ií]tulo|no title|none|null|unknown|title|titre|slide"
    r"|page \d+|(?:new |word )?document|dokument|presentation|(?:powerpoint |présentation )(?:presentation|powerpoint)"
    r"|microsoft (?:word|powerpoint|excel)|scan\w*|img\w*|doc\w{0,3})[ _\-.]*\d*$",
    re.IGNORECASE,
)
_APPLICATION = re.compile(r"^microsoft (?:word|powerpoint|excel|office)\b.*\s[-–]\s", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"\.(?:docx?|pptx?|xlsx?|od[tsp]|rtf|pdf|indd|qxd|tex|dvi|ps|pmd|html?|txt|eps|cdr|pub|p65)$", re.I
)
_LONGEST = 300


def sensible_title(candidate: object) -> str | None:
    """The candidate as one clean line, None where it is no title (`untitled`, a file or application name)."""
    if not isinstance(candidate, str):
        return None
    title = sanitise_line(candidate)
    if not 2 <= len(title) <= _LONGEST or not any(char.isalnum() for char in title):
        return None
    if _MEANINGLESS.match(title) or _APPLICATION.match(title) or _FILE_NAME.search(title) or "\\" in title:
        return None
    if " " not in title and ("/" in title or re.search(r"\.\w{2,4}$", title)):
        return None
    return title


def choose_title(candidate: object, blocks: Sequence[Block]) -> str | None:
    """The document's own title where it is sensible, else its first heading of level 1, else None."""
    own = sensible_title(candidate)
    if own is not None:
        return own
    return next(
        (
            title
            for block in blocks
            if block.kind == "heading" and block.level == 1 and (title := sensible_title(block.text))
        ),
        None,
    )
