"""The context header of a chunk: `title › section › subsection`.

A passage cut out of a document no longer says what it is about. A header made from the document's own
structure goes into both the embedding and the lexical index, but is not shown; it costs no language model
and is the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = " › "
_LONGEST_PART = 80  # characters; a longer heading is a sentence that was set in bold


def context_header(title: str | None, section: Sequence[str]) -> str | None:
    """The header for a chunk of a document.

    Args:
        title: the document's title, None or blank without one.
        section: headings above the chunk, outermost first.

    Returns:
        Title and headings on one line, each at most 80 characters, a heading that equals its predecessor
        left out (a document usually repeats its title as its first heading); None where nothing is known.
    """
    parts: list[str] = []
    for part in (title or "", *section):
        clean = " ".join(part.split())
        if len(clean) > _LONGEST_PART:
            clean = clean[: _LONGEST_PART - 1].rstrip() + "…"
        if clean and not (parts and parts[-1].casefold() == clean.casefold()):
            parts.append(clean)
    return SEPARATOR.join(parts) or None
