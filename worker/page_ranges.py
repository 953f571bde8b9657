"""Pages that wait for OCR, as rows that all OCR workers of an installation claim: the table `page_ranges`.

A worker that reads a document and finds that more of its pages need OCR than it may do itself parks it: the pages
become ranges, the source `reading`. OCR workers claim ranges as documents are claimed, under a lease and a token, and
save each page as it is read. Saving the last page of a source makes it due again; whoever claims it then finds all
pages read and commits it as a whole.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self
from uuid import UUID

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from pipelines.errors import GristmillError, RetryableError, UnavailableError
from pipelines.extract.isolation.wire import load_page
from pipelines.types import OcrPage
from worker import page_ranges_statements as statements
from worker.backoff import backoff
from worker.ledger import Claim

RANGE_PAGES = 5
"""Most pages of a range. Each range starts a process, which costs about as much as to read half a page."""

OCR_VERSION = 1  # raise it when the same page and settings come to give other text
WORKER_DIED = "worker-died"

Saved = Literal["fenced", "kept", "finished", "released"]
"""What became of the work: dropped; kept; kept, and its range is done; and no page is left, so its source is due."""


@dataclass(frozen=True, slots=True)
class OcrRecipe:
    """Everything but the bytes that decides what OCR makes of a page. Ranges are read as theirs says, wherever it is.

    Attributes:
        languages: Tesseract codes with `+` between.
        dpi: resolution at which pages are rendered.
        version: of the code that reads them.
    """

    languages: str
    dpi: int
    version: int = OCR_VERSION

    def __str__(self) -> str:
        return f"{self.version} {self.languages} {self.dpi}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`."""
        version, languages, dpi = text.split(" ")
        return cls(languages, int(dpi), int(version))


@dataclass(frozen=True, slots=True)
class Parked:
    """What all ranges of a source have in common.

    Attributes:
        version: of the source, when its bytes were last read.
        content_hash: SHA-256 of those bytes.
        recipe: an `OcrRecipe` as text.
        location: name of the bytes in the spool; None: they are at the source's uri.
        name: what the document is called.
    """

    version: int
    content_hash: bytes
    recipe: str
    location: str | None
    name: str


@dataclass(frozen=True, slots=True)
class RangeClaim:
    """A range under our lease.

    Attributes:
        uri: of its source.
        done: numbers of those `pages` that are read already.
    """

    id: int
    source_id: int
    uri: str
    location: str | None
    name: str
    content_hash: bytes
    recipe: str
    pages: Sequence[int]
    attempts: int
    delays: int
    token: UUID
    done: Sequence[int]

    @property
    def left(self) -> list[int]:
        """Numbers of the pages that are still to be read, in order."""
        return [number for number in self.pages if number not in self.done]


class PageRanges:
    """The ranges as one connection sees them. Not to be shared between threads, nor kept across a fork."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        lease_seconds: float = 30.0,
        max_attempts: int = 5,
        backoff_seconds: float = 2.0,
        backoff_cap_seconds: float = 600.0,
    ) -> None:
        self.connection = connection
        self.max_attempts = max_attempts
        self._lease = lease_seconds
        self._backoff = backoff_seconds
        self._backoff_cap = backoff_cap_seconds
        self._holder = f"{socket.gethostname()}:{os.getpid()}"

    # --- whoever reads documents -------------------------------------------------------------------------------

    def parked(self, source_id: int) -> Parked | None:
        """What the ranges of a source belong to; None where it has none."""
        with self.connection.cursor(row_factory=class_row(Parked)) as cursor:
            return cursor.execute(statements.PARKED, (source_id,)).fetchone()

    def results(self, source_id: int, content_hash: bytes, recipe: str) -> dict[int, OcrPage]:
        """The pages of these bytes that have been read with this recipe, by number; those that failed as well."""
        values = {"source": source_id, "content_hash": content_hash, "recipe": recipe}
        rows = self.connection.execute(statements.RESULTS, values).fetchall()
        return {page["number"]: load_page(page) for (result,) in rows for page in result}

    def park(self, claim: Claim, parked: Parked, awaiting: Sequence[int], pages: int) -> int | None:
        """Leave pages to the OCR workers and give up the claim; the source is due again once they are read.

        Ranges of the same bytes and recipe stay, with what is read of them; all others of this source are forgotten.

        Args:
            awaiting: numbers of the pages that nobody has read yet.
            pages: how many the document has in all.

        Returns:
            How many ranges wait; 0 where they were finished meanwhile; None if the claim no longer stood.
        """
        values = {
            "source": claim.id,
            "version": parked.version,
            "content_hash": parked.content_hash,
            "recipe": parked.recipe,
            "location": parked.location,
            "name": parked.name,
            "total": pages,
        }
        with self.connection.transaction():
            if self.connection.execute(statements.HOLD_CLAIMED, (claim.id, claim.token)).fetchone() is None:
                return None
            self.connection.execute(statements.FORGET_OTHERS, values)
            kept = self.connection.execute(statements.KEEP, values).fetchall()
            there = {number for _, numbers in kept for number in numbers}
            first = max((ordinal for ordinal, _ in kept), default=-1) + 1
            for ordinal, numbers in enumerate(cut([n for n in awaiting if n not in there]), first):
                self.connection.execute(statements.ADD, values | {"ordinal": ordinal, "pages": numbers})
            row = self.connection.execute(statements.PARK, values).fetchone()
        assert row is not None
        return int(row[1])

    # --- OCR workers -------------------------------------------------------------------------------------------

    def claim(self) -> RangeClaim | None:
        """Take a range under a lease; None where none is due.

        The first ranges of all documents come before their second ones: a short scan does not wait for a long one.
        """
        values = {"lease": self._lease, "holder": self._holder}
        with self.connection.cursor(row_factory=class_row(RangeClaim)) as cursor:
            return cursor.execute(statements.CLAIM, values).fetchone()

    def renew(self, claim: RangeClaim) -> bool:
        """Extend the lease. False when the claim no longer stands: stop working."""
        values = {"lease": self._lease, "id": claim.id, "token": claim.token}
        return self.connection.execute(statements.RENEW, values).rowcount == 1

    def save(self, claim: RangeClaim, page: OcrPage) -> Saved:
        """Keep what OCR made of one page; the claim ends with the last page of its range."""
        with self.connection.transaction():
            # With the source locked, of two last pages of a document one is saved after the other and sees it.
            self.connection.execute(statements.HOLD_SOURCE, (claim.source_id,))
            return self._save(claim, page)

    def fail(self, claim: RangeClaim, error: GristmillError, page: int | None) -> Saved:
        """Give up a claim because of an error.

        A retryable one is tried again after a while; unavailable dependencies never use up attempts. What cannot help
        any more is held against the page: it is kept as one that failed, and the next attempt goes on after it.

        Args:
            page: the one that was being read; None: no page is to blame, and when the attempts are used up the source
                is given back to those who read documents.
        """
        values = {"id": claim.id, "token": claim.token, "code": error.code, "cause": error.cause}
        values |= {"remedy": error.remedy, "delay": 0, "delays": 0, "attempts": 0}
        with self.connection.transaction():
            source = self.connection.execute(statements.HOLD_SOURCE, (claim.source_id,)).fetchone()
            row = self.connection.execute(statements.HOLD_RANGE, (claim.id, claim.token)).fetchone()
            if row is None or source is None:
                return "fenced"
            waiting = isinstance(error, UnavailableError)
            if waiting or (isinstance(error, RetryableError) and row[0] < self.max_attempts):
                delay = backoff(claim.delays, self._backoff, self._backoff_cap)
                if isinstance(error, RetryableError) and error.retry_after is not None:
                    delay = max(error.retry_after, 0.0) + random.uniform(0, self._backoff)
                values |= {"delay": delay, "delays": 1, "attempts": row[0] - waiting}
            elif page is None:
                return self._give_back(claim, source[1])
            else:
                saved = self._save(claim, OcrPage(page, problem=error.code.replace("_", "-")))
                if saved != "kept":
                    return saved
            self.connection.execute(statements.POSTPONE, values)
        return "kept"

    def give_back(self, claim: RangeClaim) -> Saved:
        """The bytes are no longer those of the ranges: forget them all, and have the document read again.

        After a back-off: a machine that sees other bytes than all others at the same path must not set off a storm.
        """
        with self.connection.transaction():
            source = self.connection.execute(statements.HOLD_SOURCE, (claim.source_id,)).fetchone()
            row = self.connection.execute(statements.HOLD_RANGE, (claim.id, claim.token)).fetchone()
            return "fenced" if row is None or source is None else self._give_back(claim, source[1])

    def due(self, limit: int = 1000) -> int:
        """How many ranges could be claimed now, counted up to `limit`."""
        row = self.connection.execute(statements.DUE, (limit,)).fetchone()
        return int(row[0]) if row else 0

    def release(self) -> int:
        """Make sources due that wait for no page any more; how many. There are none unless somebody wrote by hand."""
        return self.connection.execute(statements.RELEASE).rowcount

    def _save(self, claim: RangeClaim, page: OcrPage) -> Saved:
        values = {"id": claim.id, "token": claim.token, "source": claim.source_id, "lease": self._lease}
        values |= {"page": Jsonb(asdict(page)), "number": page.number}
        row = self.connection.execute(statements.SAVE, values).fetchone()
        if row is None:
            return "fenced"
        source = self.connection.execute(statements.PROGRESS, values).fetchone()
        if source == ("pending",):
            return "released"
        return "finished" if row[0] == "done" else "kept"

    def _give_back(self, claim: RangeClaim, delays: int) -> Saved:
        self.connection.execute(statements.FORGET, (claim.source_id,))
        delay = backoff(delays, self._backoff, self._backoff_cap)
        self.connection.execute(statements.GIVE_BACK, {"source": claim.source_id, "delay": delay})
        return "released"


def cut(pages: Sequence[int]) -> list[list[int]]:
    """Pages in ranges of nearly the same size, at most `RANGE_PAGES`; two at least, so that they are shared out."""
    count = min(len(pages), max(2, -(-len(pages) // RANGE_PAGES)))
    return [list(pages[at * len(pages) // count : (at + 1) * len(pages) // count]) for at in range(count)]
