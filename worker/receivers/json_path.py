"""JSON paths that name one place: the singular queries of RFC 9535, section 2.3.5.1.

`$.page.url`, `$['page']["url"]`, `$.files[0].name`, `$.files[-1]`. Nothing that searches or computes, so a path of
the settings can neither be slow nor surprise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_SEGMENT = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)
      | \[\s*(?P<index>0|-?[1-9][0-9]{0,8})\s*\]
      | \[\s*'(?P<single>[^'\\]*)'\s*\]
      | \[\s*"(?P<double>[^"\\]*)"\s*\]""",
    re.VERBOSE,
)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""What `JsonPath.find` gives where there is nothing; null is something."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path; `text` is how it was written."""

    text: str
    parts: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: str) -> JsonPath:
        """Parse a path.

        Raises:
            ValueError: it is none, or one that may name several places.
        """
        if not text.startswith("$"):
            raise ValueError(f"{text!r} is not a JSON path: it does not begin with $")
        parts: list[str | int] = []
        at = 1
        while at < len(text):
            found = _SEGMENT.match(text, at)
            if found is None:
                raise ValueError(f"{text!r} is not a JSON path of the form $.a.b[0]: see from character {at + 1}")
            if found["index"] is not None:
                parts.append(int(found["index"]))
            else:
                parts.append(next(found[key] for key in ("name", "single", "double") if found[key] is not None))
            at = found.end()
        return cls(text, tuple(parts))

    def find(self, value: Any) -> Any:
        """What is at this place of a JSON value, or MISSING."""
        for part in self.parts:
            if isinstance(part, str):
                if not isinstance(value, dict) or part not in value:
                    return MISSING
                value = value[part]
            else:
                if not isinstance(value, list) or not -len(value) <= part < len(value):
                    return MISSING
                value = value[part]
        return value

    def __str__(self) -> str:
        return self.text
