"""Write settings.md from `worker.settings.Settings`: `python -m docs.settings`.

The page is committed, so that it can be read where the code is not run; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

from worker.settings import PREFIX, Settings

PAGE = Path(__file__).with_suffix(".md")

INTRODUCTION = """\
# Settings

<!-- Written by `python -m docs.settings`; change worker/settings.py instead. -->

Every setting is an environment variable. What is not set there is taken from `gristmill.env` in the home directory
(`NAME=value`, one a line), and what is not there either has the default below. `gristmill up --watch FOLDER` goes
before all of them. A `GRISTMILL_` variable that is not in these tables, or a value out of its range, stops the command
with an error that names it.

`OPENAI_API_KEY` and `NOTION_TOKEN` are read from the environment as well, where their `GRISTMILL_` forms are not set.
"""

GROUPS = {
    "home": "Places",
    "watch": "Folders",
    "ingest_concurrency": "Work",
    "embedder": "Embeddings",
    "chunk_tokens": "Chunks and languages",
    "ocr_languages": "Reading documents",
    "http_host": "HTTP",
    "syncs": "Syncs",
    "log_level": "Logs",
}
"""First setting of each group, in the order of the class, and the group's heading."""

DEFAULTS = {
    "home": "the user's data directory, e.g. `~/.local/share/gristmill`; for root `/var/lib/gristmill`",
}
"""Defaults that depend on who asks."""

COMPARISONS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def page() -> str:
    """The whole of settings.md."""
    return "\n".join([INTRODUCTION, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for position, (name, field) in enumerate(Settings.model_fields.items()):
        if name in GROUPS:
            if position:
                yield ""
            yield from (f"## {GROUPS[name]}", "", "| Variable | Default | Values | Meaning |", "|---|---|---|---|")
        cells = (f"`{PREFIX}{name.upper()}`", DEFAULTS.get(name) or default(field), values(field), field.description)
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def default(field: FieldInfo) -> str:
    """The default of a setting, `unset` where there is none."""
    if field.default in (None, ()) or field.default_factory is dict:
        return "unset"
    return f"`{field.default}`"


def values(field: FieldInfo) -> str:
    """What a setting may be, in a few words."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    limits = [
        f"{sign} {getattr(rule, attribute):,}"
        for rule in field.metadata
        for kind, (sign, attribute) in COMPARISONS.items()
        if isinstance(rule, kind)
    ]
    return " ".join(part for part in (_kind(field), " and ".join(limits), *_shape(field)) if part)


def _kind(field: FieldInfo) -> str:
    types = {kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)}
    names: dict[type[Any], str] = {int: "integer", float: "number", str: "text", Path: "path"}
    found = next(name for kind, name in names.items() if kind in types)
    return f"list of {found}s" if get_origin(field.annotation) is tuple else found


def _shape(field: FieldInfo) -> Iterator[str]:
    for rule in field.metadata:
        pattern = getattr(rule, "pattern", None)
        if pattern:
            yield f"like `{pattern}`"
        elif isinstance(rule, MinLen):
            yield "not empty"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
