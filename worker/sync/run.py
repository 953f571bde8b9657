"""One run of one sync: what a connector lists and finds, compared with what is remembered, put into the ledger.

Everything is level-triggered: whatever a run that was killed, fenced or cut off by its provider did not get to is done
by the next one. Nothing is deleted on the word of a listing that is not complete, of a failure, or of one look.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import psycopg

from pipelines.errors import (
    ConfigurationError,
    GristmillError,
    PermanentError,
    RetryableError,
    UnavailableError,
)
from worker.backoff import asked_wait, backoff
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Document, Gone, Incomplete, Item, Known, Unchanged
from worker.drain import to_record
from worker.kept_out import CODE as KEPT_OUT
from worker.lease import FencedError, Lease
from worker.settings import Settings
from worker.sync.absence import MEMORY, too_many
from worker.sync.memory import Memories, Memory
from worker.sync.schedule import Report, Turn
from worker.sync.storable import (
    check_name,
    is_name,
    said,
    storable_document,
    storable_unchanged,
    storable_version,
)
from worker.sync.take import Taker

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 60.0
LONGEST_RETRY_SECONDS = 86_400.0
WAKE_SECONDS = 1.0
MOST_NOTICES = 20
MOST_MERGED = 0.1
"""Share of a sync's documents that may turn out to be one and the same."""


class Run:
    """Brings one sync's documents in step.

    Args:
        clock: the time by which visits are due.
        news: called when documents are due for indexing, about once a second and at the end.
        confirmed: an operator wants what is missing deleted, however much it is.
    """

    def __init__(
        self,
        settings: Settings,
        turn: Turn,
        config: SyncConfig,
        connector: Connector,
        memories: Memories,
        taker: Taker,
        lease: Lease,
        *,
        clock: Callable[[], datetime],
        news: Callable[[], object],
        confirmed: bool = False,
    ) -> None:
        self._settings = settings
        self._turn = turn
        self._config = config
        self._connector = connector
        self._memories = memories
        self._taker = taker
        self._lease = lease
        self._clock = clock
        self._news = news
        self._confirmed = confirmed
        self._counts: Counter[str] = Counter()
        self._notices: list[str] = []
        self._seen: set[int] = set()
        self._visited: set[int] = set()
        self._gaps: list[str] = []
        self._complete = True
        self._twins: list[tuple[Item, Memory]] = []
        self._gone: dict[str, tuple[Memory, Gone, str | None]] = {}
        self._told = 0.0

    def report(self) -> Report:
        """How it went so far."""
        return Report(dict(self._counts), self._notices[:MOST_NOTICES])

    @property
    def complete(self) -> bool:
        """Whether the listing named everything that it was to name."""
        return self._complete

    @property
    def _may_forget(self) -> bool:
        """Whether the connector's own memory of what is gone will be kept: its cursor, at the end of a good run."""
        return self._turn.listing and self._complete

    def look(self, keys: list[str]) -> None:
        """Visit documents that a push named, and act on it: what comes after may fail, and they are not named again."""
        for key in keys:
            self._visit(key, self._memories.get(key))
        self.settle()

    def list(self, *, full: bool) -> GristmillError | None:
        """Go through a listing, visit what is new or changed, then judge what is missing from it.

        Returns:
            What broke the listing off, if anything did; the documents can be visited all the same.

        Raises:
            UnavailableError, ConfigurationError: the provider is away, or cannot be asked like this.
        """
        self._counts["full"] = int(full)
        failure: GristmillError | None = None
        try:
            for entry in self._connector.listing(full=full):
                self._lease.check()
                if isinstance(entry, Incomplete):
                    self._complete = False
                    self._notice(entry.reason)
                    if not (entry.asking and self._connector.absence == "ask"):
                        self._gaps.append(entry.prefix)
                else:
                    self._listed(entry)
        except (FencedError, psycopg.Error, UnavailableError, ConfigurationError):
            raise
        except Exception as error:
            failure = to_record(error)
            self._complete = False
            log.warning(
                "the listing of %s failed: %s", self._turn.name, said(str(failure)), exc_info=_unforeseen(error)
            )
        whole = full and failure is None
        self._rename_twins(trusted=whole and "" not in self._gaps)
        if whole:
            self._judge_missing()
        return failure

    def revisit(self) -> None:
        """Visit what is due whatever the listing said: validators to check, failures to mend, absences to confirm."""
        for memory in self._memories.due(self._clock(), self._turn.begun_at):
            self._visit(memory.key, memory)

    def settle(self, *, broken_off: bool = False) -> None:
        """Act on what was found gone so far, unless it is too much to be true.

        Args:
            broken_off: the run ends here, and not well.
        """
        self._complete &= not broken_off
        now = self._clock()
        found, self._gone = list(self._gone.values()), {}
        removing = [memory for memory, gone, _ in found if self._leaves(memory, gone, now)]
        # What a person has confirmed is not held against what goes later.
        since = max(now - MEMORY, self._turn.confirmed_at or now - MEMORY)
        live, recent = self._memories.size(since)
        share, minimum = self._settings.delete_guard_share, self._settings.delete_guard_minimum
        if not self._confirmed and too_many(len(removing), live, recent, share=share, minimum=minimum):
            self._counts["held"] = len(removing)
            notice = (
                f"{len(removing)} of {live} documents seem to be gone; none is deleted: see whether they can still be"
                f" read there, or confirm with `gristmill sync {self._turn.name} --confirm-deletions`"
            )
            self._notices.insert(0, notice)  # of all there is to tell, it alone asks for a decision
            log.warning("%s: %s", self._turn.name, notice)
            self._memories.ask_again([memory.key for memory, _, _ in found], now)
            return
        for memory, gone, version in found:
            self._lease.check()
            if memory.removed_at is not None:
                if hash(memory.key) in self._seen:
                    # Named but not there: forgotten, it would be new to the next run.
                    self._taker.missed(memory, version=version, remove=False, again_in=LONGEST_RETRY_SECONDS, now=now)
                elif self._may_forget and (now - memory.removed_at).total_seconds() >= self._config.confirm_after:
                    self._taker.forget(memory)
                    self._counts["forgotten"] += 1
                continue
            remove = self._leaves(memory, gone, now)
            again_in = self._config.confirm_after
            self._taker.missed(memory, version=version, remove=remove, again_in=again_in, now=now)
            self._counts["removed" if remove else "missing"] += 1
            log.info("%s %s: %s", "removed" if remove else "missing", memory.uri, said(gone.reason))

    # --- one document ------------------------------------------------------------------------------------------

    def _listed(self, item: Item) -> None:
        self._counts["listed"] += 1
        self._seen.add(hash(item.key))
        try:
            check_name(item.key)
            check_name(item.uri)
        except PermanentError as error:
            self._nameless(error)
            return
        item = replace(item, version=storable_version(item.version))
        memory = self._memories.get(item.key)
        if memory is None:
            if item.content_addressed and item.version is not None and (twin := self._twin(item.version)):
                self._twins.append((item, twin))
                return
            self._visit(item.key, None, item.version)
        elif (
            item.content_addressed and item.uri != memory.uri and item.version == memory.version and not memory.failures
        ):
            # The settings have moved the place: its content being the same is no answer to where it is.
            self._visit(item.key, replace(memory, version=None, state={}), item.version)
        elif memory.wants_visit(item.version, self._clock()):
            self._visit(item.key, memory, item.version)
        else:
            self._counts["unchanged"] += 1

    def _visit(self, key: str, memory: Memory | None, version: str | None = None) -> None:
        """Visit a document once a run.

        Args:
            version: that a listing gave.
        """
        self._lease.check()
        if hash(key) in self._visited:
            return
        self._visited.add(hash(key))
        if self._taker.kept_out(self._connector.uri_of(key)):
            self._counts["kept out"] += 1
            return
        self._counts["visited"] += 1
        # What is not in the index has to be read whole: "not modified" would leave it out for ever.
        absent = memory is None or memory.lost or memory.removed_at is not None
        known = memory.known() if memory else None
        if known and absent:
            known = Known(key, known.uri, missing=True)
        try:
            with tempfile.TemporaryDirectory(prefix="gristmill-sync-") as folder:
                found = self._connector.visit(key, known, Path(folder))
                if isinstance(found, Document):
                    self._document(key, memory, storable_document(found))
                elif isinstance(found, Unchanged):
                    if memory is None or absent:
                        raise TypeError(f"{key} cannot be unchanged, for it is not in the index")
                    self._counts["unchanged"] += 1
                    self._tell(self._taker.unchanged(key, memory, storable_unchanged(found), self._clock()))
                elif memory is not None and (memory.fetched or (found.at_once and not found.unwanted)):
                    self._gone[key] = (memory, found, version)
                elif found.unwanted:
                    self._left_out(key, found, version)
                elif not found.at_once:
                    raise PermanentError("gone", found.reason, "correct its address, or take it off the list")
        except (FencedError, UnavailableError, ConfigurationError):
            raise
        except Exception as error:
            if _lost(error):
                raise
            known_error = to_record(error)
            uri = memory.uri if memory else self._connector.uri_of(key)
            if known_error.code == KEPT_OUT or self._taker.kept_out(uri):  # erased meanwhile, or it turned out to be it
                self._counts["kept out"] += 1
                return
            log.warning("cannot fetch %s: %s", said(uri), said(str(known_error)), exc_info=_unforeseen(error))
            self._refused(key, memory, uri, known_error, version)

    def _document(self, key: str, memory: Memory | None, found: Document) -> None:
        if memory is not None and memory.fetched and memory.uri != found.uri:
            self._check_merged(key, found.uri)
        news = self._taker.document(key, memory, found, self._connector.uri_of(key), self._clock())
        if memory is None:
            self._counts["new"] += 1
        elif memory.uri != found.uri:
            self._counts["moved"] += 1
        else:
            self._counts["changed" if news else "unchanged"] += 1
        for problem in found.unread:
            self._notice(f"{found.uri}: {problem}")
        self._tell(news)

    def _check_merged(self, key: str, uri: str) -> None:
        """See that no large part of a sync becomes one document, as where a site sends everybody to log in.

        Raises:
            RetryableError: `merged`.
        """
        merged = len(self._memories.others(uri, key))
        if self._confirmed or merged < self._settings.delete_guard_minimum:
            return
        live, _ = self._memories.size(self._clock())
        if merged > MOST_MERGED * live:
            self._counts["held"] += 1
            raise RetryableError(
                "merged",
                f"it seems to have become {uri}, as {merged} of {live} documents have",
                "see whether they can still be read there, or confirm with"
                f" `gristmill sync {self._turn.name} --confirm-deletions`",
            )

    def _left_out(self, key: str, found: Gone, version: str | None) -> None:
        self._counts["left out"] += 1
        uri = self._connector.uri_of(key)
        again_in = LONGEST_RETRY_SECONDS
        self._taker.left_out(key, uri, found.reason, version=version, again_in=again_in, now=self._clock())

    def _refused(self, key: str, memory: Memory | None, uri: str, error: GristmillError, version: str | None) -> None:
        if not is_name(uri):
            self._nameless(error)
            return
        self._counts["failed"] += 1
        wait = backoff(memory.failures if memory else 0, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        if isinstance(error, PermanentError):
            wait = LONGEST_RETRY_SECONDS
        elif isinstance(error, RetryableError) and error.retry_after is not None:
            wait = asked_wait(error.retry_after)
        self._taker.refused(key, memory, uri, error, version=version, again_in=wait, now=self._clock())

    def _notice(self, text: str) -> None:
        """Tell the operator, who reads the first ones at most."""
        if len(self._notices) < MOST_NOTICES:
            self._notices.append(said(text))

    def _nameless(self, error: GristmillError) -> None:
        """Tell of a document that no row can stand for."""
        self._counts["failed"] += 1
        self._notice(error.cause)
        log.warning("%s: %s", self._turn.name, said(error.cause))

    # --- what is missing ---------------------------------------------------------------------------------------

    def _twin(self, version: str) -> Memory | None:
        """A document of this version that the listing has not named so far."""
        for memory in self._memories.with_version(version):
            claimed = any(twin.key == memory.key for _, twin in self._twins)
            if hash(memory.key) not in self._seen and memory.removed_at is None and not memory.lost and not claimed:
                return memory
        return None

    def _rename_twins(self, *, trusted: bool) -> None:
        """Newcomers that have the content of a document which is missing are that document; others are new."""
        for item, twin in self._twins:
            if trusted and hash(twin.key) not in self._seen and not self._unlisted(twin):
                self._taker.rename(twin, item.key, item.uri)
                self._counts["moved"] += 1
                self._tell(True)
            else:
                self._visit(item.key, None, item.version)

    def _judge_missing(self) -> None:
        """Documents that a complete listing does not name, and that were there before it began."""
        if self._connector.absence == "nothing" or "" in self._gaps:
            return
        for memory in self._memories.all():
            if hash(memory.key) in self._seen or memory.first_seen >= self._turn.begun_at:
                continue
            if self._unlisted(memory):
                continue
            self._lease.check()
            if self._connector.absence == "gone" or not memory.fetched:
                self._visited.add(hash(memory.key))
                self._gone[memory.key] = (memory, Gone("it is not listed any more", at_once=True), None)
            elif memory.removed_at is None or memory.check_at is None or memory.check_at <= self._clock():
                self._visit(memory.key, memory)

    def _unlisted(self, memory: Memory) -> bool:
        """Whether the listing could not tell if it is there."""
        return any(memory.uri.startswith(prefix) for prefix in self._gaps)

    def _leaves(self, memory: Memory, gone: Gone, now: datetime) -> bool:
        """Whether a document is believed to be gone: its provider is sure, or it was gone at an earlier look too."""
        if memory.removed_at is not None:
            return False
        if gone.at_once:
            return True
        since = memory.missing_since
        return since is not None and (now - since).total_seconds() >= self._config.confirm_after

    def _tell(self, news: bool) -> None:
        if news:
            self._counts["indexed"] += 1
            if time.monotonic() - self._told >= WAKE_SECONDS:
                self._told = time.monotonic()
                self._news()


def _lost(error: Exception) -> bool:
    """Whether it is about the database as a whole, and not about what one document had it do.

    Classes 40 (deadlock) and 54 (a limit) leave the connection as good as it was (source: PostgreSQL, "Error Codes").
    """
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] not in ("40", "54")


def _unforeseen(error: Exception) -> Exception | None:
    """What the log shows a traceback of."""
    return None if isinstance(error, GristmillError) else error
