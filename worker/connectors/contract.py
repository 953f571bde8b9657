"""The one interface to places that documents come from by themselves: list what is there, visit one, be told of news.

A connector knows its provider and nothing of the ledger: it compares nothing, deletes nothing and remembers nothing
but what it is handed back. `worker.sync` drives it, once a run, from one thread:

1. It is asked for a listing, and each document whose version is not the one known is visited.
2. Documents whose next visit is due (`again_in`), or whose last one failed, are visited.
3. After a full listing that was complete, documents that are missing from it are judged by `absence`.

A run may be killed at any moment; the next one does again whatever was not recorded.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from worker.settings import Settings

Absence = Literal["gone", "ask", "nothing"]


def utc_now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a connector gets from whoever drives it.

    Attributes:
        settings: of this installation.
        clock: the time, with its zone; simulations have their own.
        wait: sleeps for so many seconds, and raises `worker.lease.FencedError` when the run is to end meanwhile.
            For politeness and for short waits only; a long `Retry-After` is raised as UnavailableError instead.
        cursor: what `cursor()` gave at the end of the last run that went well; empty at first.
        known: every document this sync knows, in no order, read in pieces; may be called more than once.
    """

    settings: Settings
    clock: Callable[[], datetime] = utc_now
    wait: Callable[[float], None] = time.sleep
    cursor: Mapping[str, Any] = field(default_factory=dict)
    known: Callable[[], Iterator[Known]] = lambda: iter(())


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a document.

    Attributes:
        key: what the connector calls it.
        uri: where it is in the ledger.
        version: of the last visit that went well; None where that did not settle it.
        state: what the last visit left for the next one: validators, the interval, keys of what lies below.
        missing: at the last look it was gone.
    """

    key: str
    uri: str
    version: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """A document that a listing names.

    Attributes:
        key: what `visit` needs to find it: a page id, an object's name, an address. Stable over renames where the
            provider has stable ids.
        uri: its identity in the ledger, for people too; the same for the same key as long as it does not move.
        version: as the provider tells it; the same as at the last visit means unchanged. None: only a visit tells,
            and the document is visited when it is new or due, see `again_in`.
        content_addressed: the version says what the content is (an etag, an inode with size and time), so a new key
            with the version of one that is missing is a rename.
    """

    key: str
    uri: str
    version: str | None = None
    content_addressed: bool = False


@dataclass(frozen=True, slots=True)
class Incomplete:
    """In a listing: it does not name everything, so nothing is concluded from what is missing in it.

    Attributes:
        reason: in plain words, for the operator.
        prefix: of the uris that it concerns; empty for all.
        asking: where absence means `ask`, what is missing is visited all the same: it is not much, and only visits
            will tell.
    """

    reason: str
    prefix: str = ""
    asking: bool = False


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A file that belongs to a document and becomes a document of its own below it.

    Attributes:
        key: names it among its siblings, stable over visits and renames.
        uri: its identity in the ledger.
        path: its bytes, in the folder that `visit` was given; None where the last visit's bytes are still right.
        version: what its content is, where the provider tells it without a download.
    """

    key: str
    uri: str
    filename: str
    path: Path | None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A visit found the document, new or changed or just read again.

    Attributes:
        content: its bytes: in memory, or a file in the folder that `visit` was given; None where `uri` is a `file:`
            uri that workers read themselves.
        filename: what people call it; its suffix hints at the format.
        metadata: put on every chunk: `title`, and what helps to cite and filter. Only what changes with the document:
            a value that is new at each visit would have it indexed each time.
        version: as in `Item`, of what was read; None where it is not settled, so that the next run visits again.
        state: see `Known`.
        uri: its identity now: another than the known one means that it has moved there, and another document's own
            uri that it is one and the same. A uri that belongs to somebody else (what was sent, what a sync of
            another kind keeps) is linked to and never rewritten.
        again_in: seconds until the next visit is due whatever the listing says; None: only when the version changes.
        enclosures: all files that belong to it; those known before that are not among them are gone.
        unread: parts that could not be had, in plain words; the document is taken without them.
    """

    content: bytes | Path | None
    filename: str
    uri: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    again_in: float | None = None
    enclosures: Sequence[Enclosure] = ()
    unread: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A visit found the document as it was; the attributes are those of `Document`."""

    version: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    again_in: float | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """A visit found no document.

    Attributes:
        reason: in plain words: trashed, not shared any more, answers 410.
        at_once: it leaves the index now, since people may not be allowed to see it any more; otherwise once a later
            visit confirms it.
        unwanted: there is one, but it asks to be left out (robots.txt, noindex): nobody's mistake.
    """

    reason: str
    at_once: bool = False
    unwanted: bool = False


Visit = Document | Unchanged | Gone


class Connector(ABC):
    """A place that documents come from. Opened for one run, used by one thread, closed after it.

    Errors of `listing` and `visit`:
        PermanentError: this document (or this listing) cannot be had as things are; the operator is told.
        RetryableError: not now; a visit is made again by the next run.
        UnavailableError: the whole provider is away or asks to wait (`retry_after`); the run ends here.
        ConfigurationError: the set-up is wrong (a token that is not valid); the run ends here.
    """

    absence: ClassVar[Absence]
    """What it means that a document is missing from a complete listing: `gone`; `ask`: visit it to find out;
    `nothing`: the listing names only what is recent."""

    incremental: ClassVar[bool]
    """Whether a listing that names only what has changed since the last run costs less than a full one."""

    @abstractmethod
    def listing(self, *, full: bool) -> Iterator[Item | Incomplete]:
        """What is there: everything, or where `incremental` and not `full` what may have changed.

        Read lazily: between two items others are visited, so a document made meanwhile may or may not be named.
        Raising midway means that it is incomplete; what was named before counts.
        """

    @abstractmethod
    def visit(self, key: str, known: Known | None, folder: Path) -> Visit:
        """Look at one document, and fetch it unless it is as it was.

        Args:
            known: what is remembered of it; None for a new one.
            folder: an empty one for files, removed when they have been taken.
        """

    def cursor(self) -> Mapping[str, Any]:
        """What the next run's `Surroundings.cursor` is to be if this one goes well, as JSON. Nothing by default."""
        return {}

    @abstractmethod
    def uri_of(self, key: str) -> str:
        """The uri that a document of this key gets where a push names it before any listing."""

    def pushed(self, event: Any) -> Sequence[str]:
        """Keys of the documents that a provider's event (JSON) tells of; they are visited soon. Empty: none of ours.

        A connector without events of its own gives none.
        """
        return ()

    def close(self) -> None:
        """Give up connections; called when the `with` ends."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
