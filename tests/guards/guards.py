"""The guards that protect an installation, each with the edit that takes it out and the tests that must see that.

They are in `guards.toml`, in the order of docs/security.md, then those of docs/reliability.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("guards.toml")


class TableError(Exception):
    """The table is no longer true of the sources."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement: `text` is in `file` exactly once."""

    file: str
    text: str
    instead: str

    def applied(self, source: str) -> str:
        """The source without the guard; raises TableError where the text is not there exactly once."""
        if (times := source.count(self.text)) != 1:
            raise TableError(f"{self.file} has {times} times, not once: {self.text}")
        return source.replace(self.text, self.instead)


@dataclass(frozen=True, slots=True)
class Guard:
    """What protects, how it is taken out, and who must see that.

    Attributes:
        name: what it is; unique.
        why: what the tests see without it; where several edits are made at once, why one is not enough.
        tests: `module::function` or `module::function[case]`; of one without a case, some case has to fail.
        edits: all are made together.
    """

    name: str
    why: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]


def load_guards(table: Path = TABLE) -> list[Guard]:
    """All guards, in the order of the table."""
    found = tomllib.loads(table.read_text(encoding="utf-8"))["guard"]
    return [
        Guard(one["name"], one["why"], tuple(one["tests"]), tuple(Edit(**edit) for edit in one["edit"]))
        for one in found
    ]


def without(guard: Guard, root: Path) -> dict[str, str]:
    """The sources that change without a guard, by file; raises TableError where the table is not true."""
    changed: dict[str, str] = {}
    for edit in guard.edits:
        source = changed.get(edit.file) or (root / edit.file).read_text(encoding="utf-8")
        changed[edit.file] = edit.applied(source)
    for file, source in changed.items():
        try:
            if file.endswith(".py"):
                compile(source, file, "exec")
        except SyntaxError as error:
            raise TableError(f"{guard.name}: {file} is no Python any more: {error}") from error
    return changed


def node_id(test: str, root: Path = ROOT) -> str:
    """The node id that pytest knows a test by; raises TableError where its module is not there once."""
    module, _, function = test.partition("::")
    paths = sorted(root.glob(f"tests/*/{module}.py"))
    if len(paths) != 1:
        raise TableError(f"there are {len(paths)} modules {module}.py")
    return f"{paths[0].relative_to(root).as_posix()}::{function}"


def chosen(guards: Sequence[Guard], only: str) -> list[Guard]:
    """Those whose name, files or tests hold a text; all for none."""
    return [
        guard
        for guard in guards
        if only.lower() in " ".join((guard.name, *guard.tests, *(edit.file for edit in guard.edits))).lower()
    ]
