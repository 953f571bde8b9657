"""The one tree of errors that Gristmill raises on purpose.

Every error names what went wrong in plain words (`cause`), what a person can do about it (`remedy`) and a short
stable `code` for programs. Whether another attempt can help is a matter of class, not of text.
"""

from __future__ import annotations


class GristmillError(Exception):
    """Root of all errors raised by Gristmill.

    Args:
        code: short, stable, snake_case name of the kind of failure, e.g. `encrypted`.
        cause: what happened, in one plain sentence without a trailing period.
        remedy: what to do about it, in one plain sentence; empty where nothing can be done.
    """

    def __init__(self, code: str, cause: str, remedy: str = "") -> None:
        super().__init__(code, cause, remedy)
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause} ({self.remedy})" if self.remedy else self.cause


class ConfigurationError(GristmillError):
    """The installation is set up wrongly: nothing to do with one document, nothing to retry."""


class PermanentError(GristmillError):
    """This document cannot be ingested as it is; the same bytes would fail again."""


class RetryableError(GristmillError):
    """This attempt failed but a later one may succeed; it counts towards the document's attempts.

    Args:
        retry_after: seconds to wait before the next attempt, where the other side said so.
    """

    def __init__(self, code: str, cause: str, remedy: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(code, cause, remedy)
        self.retry_after = retry_after


class UnavailableError(RetryableError):
    """Something the document depends on (embedder, provider) is away or asks to wait.

    Not the document's fault, so it never counts as an attempt: the row waits until the other side is back.
    """


class PausedError(UnavailableError):
    """What is away, or used up, is needed by all documents: they wait together, and this one keeps its turn."""
