"""Fused search: one question in, hits with their reasons out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import psycopg
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.embed import Embedder
from pipelines.errors import ConfigurationError, PermanentError

Mode = Literal["hybrid", "keyword", "vector"]


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that answers.

    Attributes:
        id: of the row in `documents`.
        uri: of the document it comes from; None for rows that others inserted without one.
        score: higher is better; comparable within one answer only.
        ranks: 1-based rank in each leg (`vector`, `keyword`, `identifier`), None where that leg did not find it.
        similarity: cosine with the question, None in keyword mode.
    """

    id: int
    uri: str | None
    content: str
    metadata: dict[str, Any]
    score: float
    ranks: dict[str, int | None]
    similarity: float | None

    def as_json(self) -> dict[str, Any]:
        """The hit as plain JSON types."""
        return asdict(self)


def search(
    connection: Connection[Any],
    query: str,
    *,
    embedder: Embedder | None,
    k: int = 10,
    mode: Mode = "hybrid",
    filter: Mapping[str, Any] | None = None,
) -> list[Hit]:
    """The `k` best passages for a question, best first.

    Args:
        connection: opened by `pipelines.database.connect`.
        embedder: makes the question's vector; not used in keyword mode, where it may be None.
        mode: which legs take part.
        filter: metadata that a hit must contain (`@>`).

    Raises:
        PermanentError: the question is empty, `k` is out of range, or the mode is unknown.
        UnavailableError: the embedder is away.
        ConfigurationError: the index was built with another model than the embedder's.
    """
    if not query.strip():
        raise PermanentError("empty_query", "the question is empty", "ask something")
    if not 1 <= k <= 1000:
        raise PermanentError("invalid_k", f"k is {k}", "ask for 1 to 1000 hits")
    if mode not in ("hybrid", "keyword", "vector"):
        raise PermanentError("invalid_mode", f"mode {mode!r} is not known", "use hybrid, keyword or vector")
    query = query.replace("\0", " ")
    vector = None
    if mode != "keyword":
        if embedder is None:
            raise ConfigurationError("no_embedder", f"{mode} search needs an embedder", "set GRISTMILL_EMBEDDER")
        check_model(connection, embedder)
        vector = PgVector(embedder.embed_query(query))
    rows = connection.execute(
        "select id, content, metadata, score, vector_rank, keyword_rank, identifier_rank, similarity"
        " from search_documents(%s, %s, %s, %s, %s, pool => %s)",
        (query, vector, k, mode, Jsonb(dict(filter or {})), max(100, k)),
    ).fetchall()
    return [
        Hit(
            id=row[0],
            uri=row[2].get("uri"),
            content=row[1],
            metadata=row[2],
            score=row[3],
            ranks={"vector": row[4], "keyword": row[5], "identifier": row[6]},
            similarity=row[7],
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
