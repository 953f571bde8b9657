"""One claimed document, from its bytes to its chunks."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection

from pipelines.chunk import ChunkRules, chunk
from pipelines.embed import Embedder
from pipelines.embed.cache import embed_chunks
from pipelines.errors import (
    ConfigurationError,
    GristmillError,
    PermanentError,
    RetryableError,
    UnavailableError,
)
from pipelines.extract import extract
from pipelines.extract.gate import check_file
from pipelines.extract.rules import ExtractRules
from pipelines.search import check_model
from pipelines.sniff import CODE
from pipelines.store import PostgresVectors
from pipelines.types import Extracted
from worker.content import content_of
from worker.database import open_database, open_ledger
from worker.ledger import Claim, Outcome
from worker.settings import Settings

log = logging.getLogger(__name__)

RECIPE_VERSION = 1  # raise it when the same bytes and settings come to give other chunks


class FencedError(Exception):
    """The claim no longer stands: somebody else has the document, or it changed or went."""


def extract_rules(settings: Settings) -> ExtractRules:
    """The settings that extraction looks at."""
    return ExtractRules(
        ocr_languages=settings.ocr_languages,
        ocr_dpi=settings.ocr_dpi,
        ocr_page_seconds=settings.ocr_page_seconds,
        max_bytes=settings.max_bytes,
        max_pages=settings.max_pages,
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
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class Ingester:
    """Claims due documents and brings them into the index. One a process; it owns its connection."""

    def __init__(self, settings: Settings, embedder: Embedder) -> None:
        self._settings = settings
        self._embedder = embedder
        self._connection: Connection[Any] | None = None

    def work(self, *, seconds: float) -> int:
        """Take due documents one after the other until none is left or the time is up.

        Returns:
            How many documents were worked on, whatever became of them.
        """
        until = time.monotonic() + seconds
        done = 0
        while time.monotonic() < until:
            try:
                if not self._work_one():
                    break
            except (psycopg.OperationalError, UnavailableError) as error:
                # The lease runs out by itself and the sweep announces the row again.
                log.warning("lost the database: %s", str(error).strip().splitlines()[0])
                self.close()
                break
            done += 1
        return done

    def close(self) -> None:
        """Give up the connection; the next claim opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = open_database(self._settings, application="gristmill ingest")
            check_model(self._connection, self._embedder)
        return self._connection

    def _work_one(self) -> bool:
        ledger = open_ledger(self._settings, self._connected())
        claim = ledger.claim()
        if claim is None:
            return False
        began = time.monotonic()
        try:
            note = self._ingest(claim)
        except FencedError:
            log.info("dropped, no longer ours: %s", claim.uri)
        except psycopg.OperationalError:
            raise
        except Exception as error:
            known = error if isinstance(error, GristmillError) else _unexpected(error)
            if isinstance(known, ConfigurationError):
                known = UnavailableError(known.code, known.cause, known.remedy)
            state = ledger.fail(claim, known)
            log.log(
                logging.ERROR if known is not error and not isinstance(error, ConfigurationError) else logging.WARNING,
                "%s: %s: %s",
                state or "dropped",
                claim.uri,
                known,
                exc_info=error if not isinstance(error, GristmillError) else None,
            )
        else:
            log.info("%s in %.2f s: %s", note, time.monotonic() - began, claim.uri)
        return True

    def _ingest(self, claim: Claim) -> str:
        connection = self._connected()
        ledger = open_ledger(self._settings, connection)
        with self._lease_kept(claim) as lease, content_of(claim, self._settings) as content:
            path = content.path
            wanted = recipe(self._settings, self._embedder.model, claim, Path(content.name).suffix)
            digest = hash_file(path, self._settings.max_bytes)
            if claim.done_version and (digest, wanted) == (claim.content_hash, claim.recipe):
                if not ledger.commit_unchanged(claim):
                    raise FencedError
                return "unchanged"
            found = extract(path, name=content.name, rules=extract_rules(self._settings), progress=lease.progress)
            lease.check()
            is_code = found.mime == CODE
            chunks = chunk(found, chunk_rules(self._settings), title=content.place if is_code else None)
            if claim.language:
                chunks = [replace(one, language=claim.language) for one in chunks]
            if not chunks:
                raise PermanentError("no_text", "no text was found in this document", "check that it is not blank")
            vectors = PostgresVectors(connection, claim.id)
            embedded = embed_chunks(
                chunks,
                self._embedder,
                vectors,
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
            swapped = ledger.commit(claim, outcome, embedded)
        if swapped is None:
            raise FencedError
        return f"{swapped.inserted} new, {swapped.kept} kept, {swapped.deleted} gone"

    @contextmanager
    def _lease_kept(self, claim: Claim) -> Iterator[_Lease]:
        lease = _Lease(self._settings, claim)
        thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
        thread.start()
        try:
            yield lease
        finally:
            lease.stop.set()
            thread.join()


class _Lease:
    """Renews a claim from a thread of its own, on a connection of its own, for as long as the work takes."""

    def __init__(self, settings: Settings, claim: Claim) -> None:
        self.stop = threading.Event()
        self._settings = settings
        self._claim = claim
        self._lost = False
        self._pages: tuple[int, int] | None = None

    def progress(self, done: int, total: int) -> None:
        """Told by extraction; written with the next renewal."""
        self._pages = (done, total)

    def check(self) -> None:
        """Raise FencedError once the claim no longer stands."""
        if self._lost:
            raise FencedError

    def keep(self) -> None:
        connection: Connection[Any] | None = None
        wait = self._settings.lease_seconds / 3
        while not self.stop.wait(wait):
            try:
                connection = connection or open_database(self._settings, application="gristmill lease")
                done, total = self._pages or (None, None)
                if not open_ledger(self._settings, connection).renew(self._claim, pages_done=done, pages=total):
                    self._lost = True
                    break
            except (psycopg.Error, GristmillError) as error:
                # The lease may run out; then the commit finds that out.
                log.warning("could not renew the lease of %s: %s", self._claim.uri, error)
                connection = None
        if connection is not None:
            connection.close()


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


def _unexpected(error: Exception) -> RetryableError:
    first = (str(error).strip() or "no message").splitlines()[0][:300]
    return RetryableError("internal_error", f"{type(error).__name__}: {first}", "see the log for the traceback")


def _report(found: Extracted) -> dict[str, Any]:
    return {"pages": [asdict(page) for page in found.pages], "metadata": dict(found.metadata)}
