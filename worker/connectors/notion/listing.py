"""What there is in Notion, as far as the API tells.

Search gives what is shared, but is documented neither to be exhaustive nor to be up to date
(`reference/post-search`, `reference/search-optimizations-and-limitations`), so three things come to it: the rows of
data sources, whose queries are exhaustive; pages that are known to lie below others; pages that are found below
others by the visits of this run. Written for API 2026-03-11.

A page in the trash that a listing still names is given with a version that no page can have, if it is known, so that
it is visited now and found gone; likewise one that has moved out of the roots. Those that nobody knows are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from worker.connectors.contract import Incomplete, Item, Surroundings
from worker.connectors.notion.ancestry import Ancestry
from worker.connectors.notion.api import HiddenError, Json, NoSuchCallError, NotionApi, RefusedError
from worker.connectors.notion.ids import page_uri, plain_id
from worker.connectors.notion.page import trashed
from worker.connectors.notion.paging import Limit, read_pages

OVERLAP = timedelta(minutes=10)
"""How far a listing of changes goes back behind the last one: search lags, and times are rounded to the minute."""

LEAVES = "!gone"

MOST_ABSENT = 100
"""Pages that are gone of which a listing of everything asks whether they are back, in turns: search need not say so,
and neither need the page above."""

MOST_KEPT = 10_000
"""Pages that are gone of which so much is remembered."""

Found = Generator[Item | Incomplete]


class Listing:
    """One run's listings.

    Attributes:
        held: the page object behind the item that was given last.
        named: ids of the pages that were named.
        newest: the latest edit that search told of, ISO 8601; empty where the search was not read to its end.
        absent: pages that were not there, each with the time when they were last asked for.
    """

    def __init__(
        self,
        api: NotionApi,
        surroundings: Surroundings,
        ancestry: Ancestry,
        roots: tuple[str, ...],
        since: str,
        absent: Mapping[str, str],
    ) -> None:
        self.absent = dict(absent)
        self.held: tuple[str, Json] | None = None
        self.named: set[str] = set()
        self.newest = ""
        self._api = api
        self._surroundings = surroundings
        self._ancestry = ancestry
        self._roots = roots
        self._inside = frozenset(roots)
        self._since = since
        self._known: frozenset[str] | None = None
        self._sources: set[str] = set()
        self._databases: set[str] = set()
        self._pages_below: deque[str] = deque()
        self._databases_below: deque[str] = deque()

    def found_below(self, pages: list[str], databases: list[str]) -> None:
        """Tell of what a visit found below a page."""
        self._pages_below.extend(pages)
        self._databases_below.extend(databases)

    def found_gone(self, page: str) -> None:
        """Tell of a page that a visit did not find."""
        self.absent[page] = stamp(self._surroundings.clock())

    def everything(self) -> Found:
        """All pages."""
        yield from self._of_roots("")
        yield from self._searched("")
        yield from self._of_shared_sources()
        absent, self.absent = self.absent, {}
        for known in self._surroundings.known():
            children = known.state.get("children") or ()
            self._pages_below.extend(child for child in children if child not in absent)
            self._databases_below.extend(known.state.get("databases") or ())
            yield from self._below()
        in_turns = sorted(absent.keys() - self.named, key=lambda page: (absent[page], page))
        self.absent |= {page: absent[page] for page in in_turns[MOST_ABSENT:MOST_KEPT]}
        self._pages_below.extend(in_turns[:MOST_ABSENT])
        yield from self._below()

    def changes(self) -> Found:
        """Pages that were edited since the last run, and a while before."""
        since = _minus_overlap(self._since)
        yield from self._of_roots(since)
        yield from self._searched(since)
        yield from self._in_trash(since)
        # Those that are known were not edited; only newcomers that search does not name yet are asked for.
        if self._pages_below:
            known = self._known_keys()
            self._pages_below = deque(page for page in self._pages_below if page not in known)
        yield from self._below()

    def _of_roots(self, since: str) -> Found:
        for root in self._roots:
            try:
                if (page := self._retrieved(root)) is not None:
                    yield from self._item(page, since)
                elif not (yield from self._database(root, since)) and not (yield from self._source(root, since)):
                    reason = f"the root {page_uri(root)} is not shared with the connection, or there is none"
                    yield Incomplete(reason, asking=True)
            except RefusedError as error:
                yield Incomplete(f"the root {page_uri(root)} cannot be read: {error.cause}")

    def _searched(self, since: str) -> Found:
        newest = ""
        complete = True
        for one in read_pages(lambda cursor: self._api.search("page", **cursor), "the search for pages"):
            if isinstance(one, Incomplete | Limit):
                complete = False
                yield (
                    one if isinstance(one, Incomplete) else Incomplete(f"the search for pages ends early: {one.reason}")
                )
                continue
            edited = str(one.get("last_edited_time") or "")
            newest = max(newest, edited)
            if since and edited and edited < since:
                break
            if one.get("object") == "page":
                yield from self._item(one, "")
        if complete:
            self.newest = newest

    def _in_trash(self, since: str) -> Found:
        """Known pages that were thrown away meanwhile, as far as search tells."""
        try:
            for one in read_pages(lambda cursor: self._api.search("page", in_trash=True, **cursor), "the trash"):
                if isinstance(one, Incomplete | Limit) or str(one.get("last_edited_time") or "") < since:
                    return
                if one.get("object") == "page":
                    yield from self._item(one, "")
        except RefusedError:
            return  # a server without this filter; the next listing of everything finds out

    def _of_shared_sources(self) -> Found:
        for one in read_pages(lambda cursor: self._api.search("data_source", **cursor), "the search for data sources"):
            if isinstance(one, Incomplete | Limit):
                yield (
                    one
                    if isinstance(one, Incomplete)
                    else Incomplete(f"the search for data sources ends early: {one.reason}")
                )
            elif one.get("object") == "data_source" and not trashed(one):
                self._ancestry.remember(one)
                if not self._inside or self._ancestry.below(one, self._inside):
                    if database := plain_id(str((one.get("parent") or {}).get("database_id") or "")):
                        self._databases.add(database)
                    yield from self._rows(str(plain_id(str(one.get("id"))) or ""), "")

    def _below(self) -> Found:
        """Pages and databases that lie below others and that no listing named; more may be found meanwhile."""
        while self._pages_below or self._databases_below:
            while self._pages_below:
                page = self._pages_below.popleft()
                if page not in self.named:
                    self.named.add(page)
                    found = self._retrieved(page)
                    if found is None or trashed(found):
                        self.found_gone(page)
                    else:
                        self.absent.pop(page, None)
                    if found is not None:
                        yield from self._item(found, "", again=True)
            if self._databases_below:
                yield from self._database(self._databases_below.popleft(), "")

    def _database(self, database: str, since: str) -> Generator[Item | Incomplete, None, bool]:
        """The rows of a database; the value says whether it is there."""
        if database in self._databases:
            return True
        try:
            found = self._api.database(database)
        except (HiddenError, RefusedError, NoSuchCallError):
            return False
        self._databases.add(database)
        self._ancestry.remember(found)
        if self._inside and not self._ancestry.below(found, self._inside):
            return True
        for one in found.get("data_sources") or ():
            if source := plain_id(str(one.get("id") or "")):
                yield from self._rows(source, since)
        return True

    def _source(self, source: str, since: str) -> Generator[Item | Incomplete, None, bool]:
        try:
            self._ancestry.remember(self._api.data_source(source))
        except (HiddenError, RefusedError, NoSuchCallError):
            return False
        yield from self._rows(source, since)
        return True

    def _rows(self, source: str, since: str) -> Found:
        """The rows of a data source, in windows of the time they were made, since a query gives 10,000 at most."""
        if not source or source in self._sources:
            return
        self._sources.add(source)
        what = f"the list of rows of data source {source}"
        start = ""
        while True:
            last = start
            ended = True
            filters = [{"timestamp": "created_time", "created_time": {"on_or_after": start}}] if start else []
            if since:
                filters.append({"timestamp": "last_edited_time", "last_edited_time": {"on_or_after": since}})
            body: Json = {"sorts": [{"timestamp": "created_time", "direction": "ascending"}]}
            if filters:
                body["filter"] = {"and": filters} if len(filters) > 1 else filters[0]
            try:
                for one in read_pages(lambda cursor, body=body: self._api.query(source, **body, **cursor), what):  # type: ignore[misc]
                    if isinstance(one, Limit):
                        ended = False
                    elif isinstance(one, Incomplete):
                        yield one
                    elif one.get("object") == "page":
                        last = str(one.get("created_time") or last)
                        yield from self._item(one, "")
            except (HiddenError, RefusedError, NoSuchCallError) as error:
                yield Incomplete(f"{what} cannot be had: {error.cause}")
                return
            if ended:
                return
            if last <= start:
                yield Incomplete(f"{what} ends early: more were made in one minute than a query gives")
                return
            start = last

    def _item(self, page: Json, since: str, *, again: bool = False) -> Found:
        key = plain_id(str(page.get("id") or ""))
        if key is None or (key in self.named and not again):
            return
        if "last_edited_time" not in page:  # a partial object
            whole = self._retrieved(key)
            if whole is None:
                return
            page = whole
        edited = str(page["last_edited_time"])
        self._ancestry.remember(page)
        if since and edited < since:
            return
        self.named.add(key)
        version = edited
        if trashed(page) or (self._inside and not self._ancestry.below(page, self._inside)):
            if key not in self._known_keys():
                return
            version += LEAVES
        self.held = (key, page)
        yield Item(key, page_uri(key), version)
        self.held = None

    def _retrieved(self, page: str) -> Json | None:
        try:
            return self._api.page(page)
        except (HiddenError, RefusedError):
            return None

    def _known_keys(self) -> frozenset[str]:
        if self._known is None:
            self._known = frozenset(known.key for known in self._surroundings.known() if not known.missing)
        return self._known


def _minus_overlap(since: str) -> str:
    try:
        moment = datetime.fromisoformat(since) - OVERLAP
    except ValueError:
        return ""
    return stamp(moment)


def stamp(moment: datetime) -> str:
    """A time as Notion writes it, so that texts compare like times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def text_of(cursor: Any) -> str:
    """The time in what the last run left."""
    since = cursor.get("since") if hasattr(cursor, "get") else None
    return since if isinstance(since, str) else ""
