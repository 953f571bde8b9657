"""Fused search: one question in, hits with their reasons out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

import psycopg
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.embed import Embedder
from pipelines.errors import ConfigurationError, PermanentError
from pipelines.types import Vector

Mode = Literal["hybrid", "keyword", "vector", "auto"]

MOST_HITS = 1000


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that answers.

    Attributes:
        id: of the row in `documents`.
        uri: of the document it comes from; None for rows that others inserted without one.
        score: higher is better; comparable within one answer only.
        ranks: 1-based rank in each leg (`vector`, `keyword`, `identifier`), None where that leg did not find it.
        similarity: cosine with the question, None without its vector.
        snippet: fragments around the question's words, on request.
    """

    id: int
    uri: str | None
    content: str
    metadata: dict[str, Any]
    score: float
    ranks: dict[str, int | None]
    similarity: float | None
    snippet: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The hit as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Options:
    """How to search; the defaults are what is best on all sets measured.

    Attributes:
        k: how many hits.
        mode: which legs take part; `auto` looks at the question.
        filter: metadata that a hit must contain (`@>`).
        sources: ledger ids that a hit must come from; None for any.
        language: language that a hit must be in, as a text search configuration.
        since, until: a hit was added at or after, and before.
        query_language: of the question; None detects it.
        alpha: share of the vector leg in the score, 0 to 1; None for the default.
        rrf_k: fuse by reciprocal rank with this k instead of by score.
        highlight: also give snippets.
        neighbours: so many chunks before and after each hit, from the same document.
        tenant: whose documents; None for all that the database role may see.
    """

    k: int = 10
    mode: Mode = "hybrid"
    filter: Mapping[str, Any] = field(default_factory=dict)
    sources: Sequence[int] | None = None
    language: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    query_language: str | None = None
    alpha: float | None = None
    rrf_k: int | None = None
    highlight: bool = False
    neighbours: int = 0
    tenant: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_HITS:
            raise PermanentError("invalid_k", f"k is {self.k}", f"ask for 1 to {MOST_HITS} hits")
        if self.mode not in get_args(Mode):
            names = ", ".join(get_args(Mode))
            raise PermanentError("invalid_mode", f"mode {self.mode!r} is not known", f"use one of {names}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise PermanentError("invalid_alpha", f"alpha is {self.alpha}", "give a share from 0 to 1")
        if self.rrf_k is not None and self.rrf_k < 1:
            raise PermanentError("invalid_rrf_k", f"rrf_k is {self.rrf_k}", "give 1 or more; 20 is good")
        if not 0 <= self.neighbours <= 100:
            raise PermanentError("invalid_neighbours", f"neighbours is {self.neighbours}", "give 0 to 100")


def embed_question(query: str, embedder: Embedder) -> Vector:
    """The vector of a question, for whoever must hold no connection while an endpoint thinks; see `check_model`.

    Raises:
        PermanentError: the question is empty.
        UnavailableError: the embedder is away.
    """
    return embedder.embed_query(_readable(query))


def _readable(query: str) -> str:
    """A question as Postgres and the models can take it."""
    query = query.replace("\0", " ").encode("utf-8", "replace").decode()
    if not query.strip():
        raise PermanentError("empty_query", "the question is empty", "ask something")
    return query


def search(
    connection: Connection[Any],
    query: str,
    embedder: Embedder | None,
    options: Options = Options(),
    *,
    vector: Vector | None = None,
) -> list[Hit]:
    """The best passages for a question, best first.

    Args:
        connection: opened by `pipelines.database.connect`.
        embedder: makes the question's vector; not used in keyword mode, where it may be None.
        vector: that of the question, where it is at hand (`embed_question`): then the embedder is not asked.

    Raises:
        PermanentError: the question is empty, or a language is not known.
        UnavailableError: the embedder is away.
        ConfigurationError: the index was built with another model than the embedder's, or is not there.
    """
    query = _readable(query)
    if options.mode == "keyword":
        vector = None
    elif vector is None:
        if embedder is None:
            raise ConfigurationError(
                "no_embedder", f"{options.mode} search needs an embedder", "set GRISTMILL_EMBEDDER"
            )
        check_model(connection, embedder)
        vector = embed_question(query, embedder)
    values = {
        "query_text": query,
        "query_embedding": None if vector is None else PgVector(vector),
        "match_count": options.k,
        "mode": options.mode,
        "filter": Jsonb(dict(options.filter)),
        "sources": list(options.sources) if options.sources is not None else None,
        "language": options.language,
        "since": options.since,
        "until": options.until,
        "query_language": options.query_language,
        "alpha": options.alpha,
        "rrf_k": options.rrf_k,
        "highlight": options.highlight,
        "neighbours": options.neighbours,
        "tenant": options.tenant,
    }
    named = ", ".join(f"{name} => %({name})s" for name in values)
    try:
        rows = connection.execute(f"select * from search_documents({named})".encode(), values).fetchall()
    except psycopg.errors.UndefinedObject as error:
        raise PermanentError(
            "unknown_language",
            f"a language is not known: {error.diag.message_primary}",
            "name a text search configuration: select cfgname from pg_ts_config",
        ) from error
    return [
        Hit(
            id=row[0],
            uri=row[2].get("uri"),
            content=row[1],
            metadata=row[2],
            score=row[3],
            ranks={"vector": row[4], "keyword": row[5], "identifier": row[6]},
            similarity=row[7],
            snippet=row[8],
        )
        for row in rows
    ]


def index_model(connection: Connection[Any]) -> tuple[str, int] | None:
    """Model id and dimensions the index is built with; None while that is open."""
    row = connection.execute("select model, dimensions from index_models").fetchone()
    return (row[0], row[1]) if row else None


def check_model(connection: Connection[Any], embedder: Embedder) -> None:
    """Refuse to mix models: vectors of two models have nothing to do with each other.

    Raises:
        ConfigurationError: naming both models and sizes.
    """
    try:
        found = index_model(connection)
    except psycopg.errors.UndefinedTable as error:
        raise ConfigurationError(
            "not_migrated", "this database has no Gristmill tables yet", "run: gristmill migrate"
        ) from error
    if found and found[0] != embedder.model:
        raise ConfigurationError(
            "model_differs",
            f"the index is built with {found[0]} ({found[1]} dimensions), the settings ask for {embedder.model}"
            f" ({embedder.dimensions} dimensions)",
            "set GRISTMILL_EMBEDDER and the model back, or build a second index beside this one in a schema of its"
            " own: GRISTMILL_SCHEMA_NAME=name",
        )
