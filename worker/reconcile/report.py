"""What a reconciliation found, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that only a person can settle: how many documents, why, what to do, and which (some of them)."""

    kind: str
    count: int
    cause: str
    remedy: str
    documents: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """How it went.

    Attributes:
        restored: the database is older than what this home has seen, or this home has seen none yet.
        done: numbers by kind; with a dry run, what would be done.
        notices: what the operator should know.
        due: documents that wait for the workers now.
    """

    restored: bool = False
    dry_run: bool = False
    done: dict[str, int] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    due: int = 0

    def add(self, kind: str, count: int = 1) -> None:
        """Count something that was done."""
        if count:
            self.done[kind] = self.done.get(kind, 0) + count

    def trouble(self, kind: str, cause: str, remedy: str, documents: Iterable[str] = (), count: int = 0) -> None:
        """Note what needs a person."""
        named = tuple(documents)
        self.troubles.append(Trouble(kind, count or len(named) or 1, cause, remedy, named[:MOST_SHOWN]))

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "dry_run": self.dry_run,
            "restored": self.restored,
            "done": self.done,
            "due": self.due,
            "needs_a_person": [
                {
                    "kind": one.kind,
                    "count": one.count,
                    "cause": one.cause,
                    "remedy": one.remedy,
                    "documents": list(one.documents),
                }
                for one in self.troubles
            ],
            "notices": self.notices,
        }
