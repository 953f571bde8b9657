"""One claimed range of pages, from the bytes of its document to their text."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.errors import GristmillError, PermanentError, RetryableError, UnavailableError
from pipelines.extract import recognise
from pipelines.extract.rules import ExtractRules
from pipelines.types import OcrPage
from worker.content import open_spool
from worker.database import open_page_ranges
from worker.drain import Drain, to_record
from worker.ingest import extract_rules, hash_file
from worker.lease import STOPPED, FencedError, kept_lease
from worker.local_file import private_copy
from worker.page_ranges import WORKER_DIED, OcrRecipe, RangeClaim, Saved
from worker.places import local_path
from worker.settings import Settings

log = logging.getLogger(__name__)


class _BytesError(RetryableError):
    """The bytes cannot be had from this machine, which is no page's fault."""


@dataclass(slots=True)
class _Work:
    """A claim and how far it is.

    Attributes:
        left: numbers of the pages to be read, the one that is being read first.
        saved: what became of the last one that was read.
    """

    claim: RangeClaim
    left: list[int]
    saved: Saved = "kept"

    def __str__(self) -> str:
        return f"pages {self.claim.pages[0]} to {self.claim.pages[-1]} of {self.claim.uri}"


class OcrWorker(Drain):
    """Claims due ranges and reads their pages."""

    application = "gristmill ocr"

    def __init__(self, settings: Settings, *, released: Callable[[], object] = lambda: None) -> None:
        """
        Args:
            released: called when all pages of a document are read, so that it is due again.
        """
        super().__init__(settings)
        self._released = released

    def _work_one(self) -> bool:
        ranges = open_page_ranges(self._settings, self._connected())
        claim = ranges.claim()
        if claim is None:
            return False
        work = _Work(claim, claim.left)
        began = time.monotonic()
        try:
            saved = self._read(work)
        except FencedError:
            saved = "fenced"
        except psycopg.OperationalError:
            raise
        except Exception as error:
            known = to_record(error)
            saved = ranges.fail(claim, known, None if isinstance(known, _BytesError) else work.left[0])
            log.log(
                logging.WARNING if isinstance(error, GristmillError) else logging.ERROR,
                "%s: %s",
                work,
                known,
                exc_info=None if isinstance(error, GristmillError) else error,
            )
        log.info("%s in %.2f s: %s", saved, time.monotonic() - began, work)
        if saved == "released":
            self._released()
        return True

    def _read(self, work: _Work) -> Saved:
        """Read what is left of a range.

        Raises:
            FencedError, GristmillError: it broke off; the pages that were read until then are kept.
        """
        claim = work.claim
        ranges = open_page_ranges(self._settings, self._connected())
        recipe = OcrRecipe.parse(claim.recipe)
        rules = replace(extract_rules(self._settings), ocr_languages=recipe.languages, ocr_dpi=recipe.dpi)

        def renew(connection: Connection[Any], _: object) -> bool:
            return open_page_ranges(self._settings, connection).renew(claim)

        def give_back(connection: Connection[Any]) -> None:
            open_page_ranges(self._settings, connection).fail(claim, STOPPED, None)

        with kept_lease(self._settings, claim.uri, renew, give_back) as lease:

            def save(page: OcrPage) -> None:
                lease.check()
                work.saved = ranges.save(claim, page)
                if work.saved == "fenced":
                    raise FencedError
                work.left.remove(page.number)

            if claim.attempts > ranges.max_attempts:
                log.error("the worker died %d times over page %d: %s", claim.attempts - 1, work.left[0], work)
                save(OcrPage(work.left[0], problem=WORKER_DIED))
            with ExitStack() as held:
                path = self._bytes(claim, held)
                if path is None:
                    return ranges.give_back(claim)
                while work.left:
                    self._recognise(path, work, rules, save)
        return work.saved

    def _recognise(self, path: Path, work: _Work, rules: ExtractRules, save: Callable[[OcrPage], None]) -> None:
        """Run one process over the pages that are left. It reads them all, or some and stumbles over the next.

        A page is held to be at fault once a process has begun with it and got no further; a document, where no page
        was begun at all.
        """
        before = list(work.left)
        begun: set[int] = set()
        try:
            recognise(
                path, before, save, name=work.claim.name, rules=rules, progress=lambda page, pages: begun.add(page)
            )
        except (PermanentError, RetryableError) as error:
            if not work.left:
                return  # all that was wanted is read and kept
            if not isinstance(error, PermanentError):
                raise
            if error.code in ("vanished", "unreadable"):
                raise _BytesError(error.code, error.cause, error.remedy) from error
            if error.code == "ocr_unavailable":  # here; it was there where the document was parked
                raise UnavailableError(error.code, error.cause, error.remedy) from error
            if work.left != before:
                return
            log.warning("page %d: %s: %s", before[0], error, work)
            for number in before[:1] if begun else before:
                save(OcrPage(number, problem=error.code.replace("_", "-")))
        else:
            if work.left == before:
                raise RetryableError("no_pages", "the process that does OCR ended without a page", "see the log")

    def _bytes(self, claim: RangeClaim, held: ExitStack) -> Path | None:
        """The file whose pages are to be read, kept until `held` is closed; None where it is another one by now."""
        if claim.location is not None:  # named by its content
            path = open_spool(self._settings).path(claim.location)
            if not path.is_file():
                raise _BytesError("vanished", f"{path} is gone", "let all workers have the same spool")
            return path
        try:
            file = local_path(claim.uri)
            path = held.enter_context(private_copy(file, self._settings.watch, self._settings.max_bytes))
            digest = hash_file(path, self._settings.max_bytes)
        except (PermanentError, RetryableError) as error:
            raise _BytesError(error.code, error.cause, error.remedy) from error
        return path if digest == claim.content_hash else None
