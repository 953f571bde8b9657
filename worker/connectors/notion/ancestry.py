"""What lies above a page: its path for people, and whether it is below one of the roots.

Written against `reference/parent-object` for API 2026-03-11: a row's parent is a data source, whose parent is a
database, whose parent is a page, a block of one, or the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.connectors.notion.api import HiddenError, NotionApi, RefusedError
from worker.connectors.notion.ids import plain_id
from worker.connectors.notion.properties import title_of

HIGHEST = 50
"""Levels that are climbed."""

SEPARATOR = " › "


@dataclass(frozen=True, slots=True)
class _Place:
    title: str
    kind: str
    above: str


class Ancestry:
    """Parents of objects, each asked for at most once a run and kept while it lasts."""

    def __init__(self, api: NotionApi) -> None:
        self._api = api
        self._places: dict[str, _Place | None] = {}
        self._refused: set[str] = set()

    def remember(self, found: Mapping[str, Any]) -> None:
        """Keep the parent of an object that was given anyway."""
        key = plain_id(str(found.get("id") or ""))
        if key and isinstance(found.get("parent"), Mapping):
            self._places[key] = _place(found)

    def path(self, page: Mapping[str, Any], before: Sequence[str] = ()) -> str:
        """Titles of what lies above the page, outermost first; empty for a page at the top or shared by itself.

        Args:
            before: the parent and the path of the last visit. With the same parent it is taken for the path where
                what is above would have to be asked for; a listing of everything has it all.
        """
        if len(before) == 2 and before[0] == self.parent(page) and not self._is_told(page):
            return before[1]
        titles: list[str] = []
        for _, place in self._above(page):
            if place.title and place.title not in titles[-1:]:  # a database and its only data source have one name
                titles.append(place.title)
        return SEPARATOR.join(reversed(titles))

    @staticmethod
    def parent(page: Mapping[str, Any]) -> str:
        """The id of what the page is right below; empty at the top."""
        return _place(page).above

    def below(self, page: Mapping[str, Any], roots: frozenset[str]) -> bool:
        """Whether the page is one of the roots or lies below one."""
        own = plain_id(str(page.get("id") or ""))
        if own in roots:
            return True
        parent = page.get("parent") or {}
        named = (plain_id(str(value)) for name, value in parent.items() if name.endswith("_id"))
        return any(one in roots for one in named) or any(
            key in roots or place.above in roots for key, place in self._above(page)
        )

    def is_refused(self, page: Mapping[str, Any]) -> bool:
        """Whether Notion does not give something that lies above the page, so that nobody knows what it is below."""
        above = [_place(page).above, *(place.above for _, place in self._above(page))]
        return above[-1] in self._refused

    def _is_told(self, page: Mapping[str, Any]) -> bool:
        """Whether all that is above the page was given already."""
        here: _Place | None = _place(page)
        for _ in range(HIGHEST):
            if here is None or not here.above:
                return True
            if here.above not in self._places:
                return False
            here = self._places[here.above]
        return True

    def _above(self, page: Mapping[str, Any]) -> Iterator[tuple[str, _Place]]:
        here = _place(page)
        for _ in range(HIGHEST):
            if not here.above:
                return
            key, kind = here.above, here.kind
            place = self._place(kind, key)
            if place is None:
                return
            yield key, place
            here = place

    def _place(self, kind: str, key: str) -> _Place | None:
        if key not in self._places:
            ask = {
                "page_id": self._api.page,
                "block_id": self._api.block,
                "database_id": self._api.database,
                "data_source_id": self._api.data_source,
            }.get(kind)
            try:
                self._places[key] = _place(ask(key)) if ask else None
            except HiddenError:
                self._places[key] = None
            except RefusedError:
                self._places[key] = None
                self._refused.add(key)
        return self._places[key]


def _place(found: Mapping[str, Any]) -> _Place:
    parent = found.get("parent") or {}
    kind = str(parent.get("type") or "")
    above = plain_id(str(parent.get(kind) or "")) or ""
    return _Place(title_of(found) if found.get("object") != "block" else "", kind, above)
