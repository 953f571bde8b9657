"""What stands between one claimed document and the embedder: whose fault it is when that goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from pipelines.embed import FOR_ALL, UNPAID, Embedder
from pipelines.errors import (
    ConfigurationError,
    GristmillError,
    PausedError,
    PermanentError,
    RetryableError,
    UnavailableError,
)
from pipelines.types import Vector
from worker.budget import Budget
from worker.ledger import Claim
from worker.pauses import Pauses
from worker.settings import Settings

log = logging.getLogger(__name__)

SUSPECT_AFTER = 3
"""Postponements in a row after which a document is suspected to bring the embedder down itself."""

OF_INDEX = """
with given as (select %s::text as name),
noted as (
  update index_models set served = name from given where served is null and name is not null returning served
)
select (select atttypmod from pg_attribute where attrelid = 'documents'::regclass and attname = 'embedding'),
  coalesce((select served from noted), (select served from index_models))
"""


class Guard:
    """The embedder for one claim. Its errors are sorted: those all documents would meet begin a pause.

    What may be due to the texts is told from what is not by a probe: as many harmless texts in one request. If the
    embedder answers that as it should, the document is at fault, and its neighbours go on.
    """

    def __init__(self, embedder: Embedder, connection: Connection[Any], settings: Settings, claim: Claim) -> None:
        self._embedder = embedder
        self._connection = connection
        self._pauses = Pauses(connection, settings)
        self._budget = Budget(connection, settings.embed_tokens_per_day)
        self._scout = claim.scout
        self._suspect = claim.delays >= SUSPECT_AFTER
        self._got_on = False
        self._index: tuple[int, str | None] | None = None

    @property
    def model(self) -> str:
        """See `Embedder.model`."""
        return self._embedder.model

    def admit(self, texts: Sequence[str]) -> None:
        """Told of all texts of the document that are to be embedded. Raises what `Budget.admit` raises."""
        self._budget.admit(texts)

    def embed_documents(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_documents`.

        Raises:
            PausedError: a pause has begun.
            RetryableError, PermanentError: the document is at fault.
        """
        proven, self._suspect = self._suspect, False
        if proven and (trouble := self._probe(len(texts))):
            raise self._paused(trouble) from trouble
        vectors = self._embed(texts, proven)
        self._answers()
        self._got_on = True
        return vectors

    def _embed(self, texts: Sequence[str], proven: bool) -> list[Vector]:
        """Vectors of texts. Once it is `proven` that others pass, they are asked for again, in halves.

        So a server that is slow gets through, what passes by itself costs nobody an attempt, and one text is left.
        """
        try:
            day = self._budget.take(texts)
        except PausedError as error:
            raise self._pauses.wait_for_tomorrow(error) from error
        try:
            return self._ask(texts)
        except PermanentError:
            self._answers()
            raise
        except (RetryableError, ConfigurationError) as error:
            if error.code in UNPAID:
                self._budget.give_back(texts, day)
            if error.code in FOR_ALL or not (proven or self._probe(len(texts)) is None):
                raise self._paused(error) from error
            self._answers()
            if proven and len(texts) == 1:
                # As long as the document gets on, batch by batch, it is no attempt.
                blamed = UnavailableError if self._got_on else RetryableError
                raise blamed(error.code, f"{error.cause}; other texts pass", error.remedy) from error
            log.warning("asked for again, since others pass: %d texts: %s", len(texts), error)
        middle = len(texts) // 2
        return [vector for part in (texts[:middle], texts[middle:]) if part for vector in self._embed(part, True)]

    def settle(self) -> None:
        """The work is over: if nothing was found out about a pause, another claim is to do it."""
        if self._scout is not None:
            self._pauses.scout_again()

    def _answers(self) -> None:
        if self._scout is not None:
            self._pauses.lift()
            self._scout = None

    def _paused(self, error: GristmillError) -> PausedError:
        scout, self._scout = self._scout, None
        return self._pauses.wait_for_embedder(error, scout)

    def _probe(self, texts: int) -> GristmillError | None:
        """What is wrong with the embedder whatever the texts; None if all is well."""
        try:
            self._ask([f"This is harmless sentence {number}." for number in range(1, texts + 1)])
        except GristmillError as error:
            return error
        return None

    def _ask(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors that fit the index, one a text."""
        vectors = self._embedder.embed_documents(texts)
        dimensions, served = self._of_index()
        if len(vectors) != len(texts) or any(vector.shape != (dimensions,) for vector in vectors):
            sizes = ", ".join(sorted({str(len(vector)) for vector in vectors})) or "no"
            raise ConfigurationError(
                "embedding_dimensions",
                f"{self.model} gave {len(vectors)} vectors of {sizes} dimensions for {len(texts)} texts, and the index"
                f" has {dimensions}",
                "see whether the endpoint serves the model that the index was built with",
            )
        name = getattr(self._embedder, "served", None)
        if None not in (name, served) and name != served:
            raise ConfigurationError(
                "embedder_other_model",
                f"the endpoint answers as {name} when asked for {self.model}, and the index was built with {served}",
                "have it serve that model; if it is the same by another name: update index_models set served = null",
            )
        return vectors

    def _of_index(self) -> tuple[int, str | None]:
        """Vector size of the index and the name that the endpoint has for its model, which is noted if it is new."""
        if self._index is None:
            name = getattr(self._embedder, "served", None)
            row = self._connection.execute(OF_INDEX, (name,)).fetchone()
            assert row is not None
            self._index = row[0], row[1]
        return self._index
