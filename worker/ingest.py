"""One claimed document, from its bytes to its chunks."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.chunk import ChunkRules, chunk
from pipelines.embed import Embedder, limit_of
from pipelines.embed.cache import embed_chunks
from pipelines.errors import (
    GristmillError,
    PermanentError,
    RetryableError,
)
from pipelines.extract import extract
from pipelines.extract.attachments import MAX_DEPTH
from pipelines.extract.gate import check_file
from pipelines.extract.rules import ExtractRules
from pipelines.search import check_model
from pipelines.sniff import CODE
from pipelines.store import PostgresVectors
from pipelines.types import Extracted
from worker.children import child_uri, spool_attachments
from worker.content import Content, content_of, open_spool
from worker.crash import crash_point
from worker.database import open_ledger, open_page_ranges
from worker.drain import Drain, to_record
from worker.guard import Guard
from worker.kept_out import is_kept_out
from worker.lease import STOPPED, FencedError, Pages, kept_lease
from worker.ledger import Claim, Outcome
from worker.page_ranges import OcrRecipe, Parked
from worker.settings import Settings

log = logging.getLogger(__name__)

RECIPE_VERSION = 3  # raise it when the same bytes and settings come to give other chunks


def extract_rules(settings: Settings) -> ExtractRules:
    """The settings that extraction looks at."""
    return ExtractRules(
        ocr_languages=settings.ocr_languages,
        ocr_dpi=settings.ocr_dpi,
        ocr_page_seconds=settings.ocr_page_seconds,
        max_bytes=settings.max_bytes,
        max_pages=settings.max_pages,
        page_seconds=settings.extract_page_seconds,
        seconds=settings.extract_seconds,
        memory_mb=settings.extract_memory_mb,
    )


def chunk_rules(settings: Settings) -> ChunkRules:
    """The settings that chunking looks at."""
    return ChunkRules(
        tokens=settings.chunk_tokens,
        overlap=settings.chunk_overlap_tokens,
        default_language=settings.default_language,
    )


def recipe(settings: Settings, model: str, claim: Claim, suffix: str) -> str:
    """Digest of everything but the bytes that decides what rows a document gives; a file's suffix is a hint."""
    facts = [
        RECIPE_VERSION,
        model,
        suffix.lower(),
        claim.language,
        claim.filename,
        claim.metadata,
        settings.ocr_languages,
        settings.ocr_dpi,
        settings.chunk_tokens,
        settings.chunk_overlap_tokens,
        settings.default_language,
        settings.embed_max_tokens,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class Ingester(Drain):
    """Claims due documents and brings them into the index."""

    application = "gristmill ingest"

    def __init__(
        self, settings: Settings, embedder: Embedder, *, parked: Callable[[int], object] = lambda ranges: None
    ) -> None:
        """
        Args:
            parked: called with a number of page ranges that wait for the OCR workers.
        """
        super().__init__(settings)
        self._embedder = embedder
        self._parked = parked
        self._spooled: list[str] = []

    def _check(self, connection: Connection[Any]) -> None:
        check_model(connection, self._embedder)

    def _work_one(self) -> bool:
        ledger = open_ledger(self._settings, self._connected())
        claim = ledger.claim()
        if claim is None:
            return False
        crash_point("after_claim")
        began = time.monotonic()
        self._spooled = []
        guard = Guard(self._embedder, self._connected(), self._settings, claim)
        try:
            note = self._ingest(claim, guard)
        except FencedError:
            log.info("dropped, no longer ours: %s", claim.uri)
            self._unspool(claim)
        except psycopg.OperationalError:
            raise
        except Exception as error:
            known = to_record(error)
            state = ledger.fail(claim, known)
            foreseen = isinstance(error, GristmillError)
            log.log(
                logging.WARNING if foreseen else logging.ERROR,
                "%s: %s: %s",
                state or "dropped",
                claim.uri,
                known,
                exc_info=None if foreseen else error,
            )
        else:
            log.info("%s in %.2f s: %s", note, time.monotonic() - began, claim.uri)
        finally:
            guard.settle()
        return True

    def _unspool(self, claim: Claim) -> None:
        """Take back what was put into the spool for a document that was erased meanwhile.

        Not for others: somebody else may be about to name the same bytes.
        """
        there = self._connected().execute("select from sources where id = %s", (claim.id,)).fetchone()
        if not self._spooled or there is not None:
            return
        try:
            open_spool(self._settings).drop(self._connected(), self._spooled, before=time.time())
        except GristmillError as error:
            log.warning("left to the sweep of the spool: %s", error)

    def _ingest(self, claim: Claim, guard: Guard) -> str:
        connection = self._connected()
        ledger = open_ledger(self._settings, connection)
        ranges = open_page_ranges(self._settings, connection)

        def renew(connection: Connection[Any], pages: Pages | None) -> bool:
            done, total = pages or (None, None)
            return open_ledger(self._settings, connection).renew(claim, pages_done=done, pages=total)

        def give_back(connection: Connection[Any]) -> None:
            open_ledger(self._settings, connection).fail(claim, STOPPED)

        with (
            kept_lease(self._settings, claim.uri, renew, give_back) as lease,
            content_of(claim, self._settings, parked := ranges.parked(claim.id)) as content,
        ):
            path = content.path
            wanted = recipe(self._settings, self._embedder.model, claim, Path(content.name).suffix)
            digest = hash_file(path, self._settings.max_bytes)
            if claim.done_version and (digest, wanted) == (claim.content_hash, claim.recipe):
                if not ledger.commit_unchanged(claim):
                    raise FencedError
                return "unchanged"
            ocr_recipe = str(OcrRecipe(self._settings.ocr_languages, self._settings.ocr_dpi))
            with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
                found = extract(
                    path,
                    name=content.name,
                    rules=replace(extract_rules(self._settings), inline_ocr_pages=self._settings.ocr_inline_pages),
                    progress=lease.progress,
                    ocr=ranges.results(claim.id, digest, ocr_recipe) if parked else {},
                    attachments=Path(folder) if claim.depth < MAX_DEPTH else None,
                )
                if found.awaiting:
                    return self._park(claim, content, digest, ocr_recipe, found.awaiting, lease.pages)
                lease.check()
                wanted_files = [
                    one
                    for one in found.attachments
                    if not is_kept_out(connection, claim.tenant, child_uri(claim.uri, one.name))
                ]
                children = spool_attachments(claim.uri, wanted_files, open_spool(self._settings))
                self._spooled = [child.location for child in children if child.location]
            crash_point("after_extract")
            lease.check()
            is_code = found.mime == CODE
            chunks = chunk(
                found,
                chunk_rules(self._settings),
                title=content.place if is_code else None,
                limit=limit_of(self._embedder),
            )
            if claim.language:
                chunks = [replace(one, language=claim.language) for one in chunks]
            if not chunks and not children:
                raise PermanentError("no_text", "no text was found in this document", "check that it is not blank")
            vectors = PostgresVectors(connection, claim.id)
            embedded = embed_chunks(
                chunks,
                guard,
                vectors,
                admit=guard.admit,
                batch_texts=self._settings.embed_batch_texts,
                batch_tokens=self._settings.embed_batch_tokens,
            )
            lease.check()
            outcome = Outcome(
                content_hash=digest,
                recipe=wanted,
                mime=found.mime,
                title=found.title,
                pages=len(found.pages) or None,
                tokens=sum(item.tokens for item in chunks),
                report=_report(found),
            )
            swapped = ledger.commit(claim, outcome, embedded, children)
        if swapped is None:
            raise FencedError
        return f"{swapped.inserted} new, {swapped.kept} kept, {swapped.deleted} gone"

    def _park(
        self,
        claim: Claim,
        content: Content,
        digest: bytes,
        ocr_recipe: str,
        awaiting: Sequence[int],
        progress: Pages | None,
    ) -> str:
        location = None if claim.kind == "file" else claim.location
        if claim.kind == "url":
            # Fetched once: all ranges, and whoever puts them together, read these very bytes.
            location = open_spool(self._settings).copy(content.path, content.name).name
            self._spooled = [location]
        parked = Parked(claim.version, digest, ocr_recipe, location, content.name)
        pages = max(*awaiting, progress[1] if progress else 0)
        waiting = open_page_ranges(self._settings, self._connected()).park(claim, parked, awaiting, pages)
        if waiting is None:
            raise FencedError
        self._parked(waiting)
        return f"{len(awaiting)} pages left to OCR workers"


def hash_file(path: Path, max_bytes: int) -> bytes:
    """SHA-256 of a file, read in pieces; the extractor gives the full story of what cannot be read.

    Raises:
        PermanentError: the file is gone, not a regular file, not readable, or larger than `max_bytes`.
    """
    check_file(path, max_bytes)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError as error:
        raise PermanentError("vanished", f"{path} is gone", "put it back, or delete it from the index") from error
    except OSError as error:
        raise RetryableError("unreadable", f"{path} cannot be read: {error.strerror}", "check the disk") from error


def _report(found: Extracted) -> dict[str, Any]:
    return {"pages": [asdict(page) for page in found.pages], "metadata": dict(found.metadata)}
