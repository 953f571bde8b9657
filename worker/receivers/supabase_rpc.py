"""The SQL functions that may be called as `/rest/v1/rpc/NAME`: their arguments by name, and a call of them as SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pgvector import Vector as PgVector
from psycopg import Connection, sql

from pipelines.types import Vector
from worker.receivers.dialect import OTHER_MODEL, DialectError, storable
from worker.receivers.supabase_filters import MOST_ROWS, Params

DOCUMENTS = {
    "id": "bigint",
    "content": "text",
    "metadata": "jsonb",
    "embedding": "vector",
    "tenant": "text",
    "source_id": "bigint",
    "chunk_index": "int",
    "content_hash": "bytea",
    "context": "text",
    "language": "text",
    "model": "text",
    "page": "int",
    "start_char": "int",
    "end_char": "int",
    "created_at": "timestamptz",
    "updated_at": "timestamptz",
    "fts": "tsvector",
    "bm25": "sparsevec",
}
"""Columns of the table `documents` and their types."""

_MATCHES = {"id": "bigint", "content": "text", "metadata": "jsonb", "similarity": "float8"}


@dataclass(frozen=True, slots=True)
class Function:
    """A SQL function.

    Attributes:
        arguments: names and types, as in Postgres.
        required: those without a default. Instead of `query_embedding`, a question can always be given.
        columns: of its rows.
        question: the argument that the question is, `filter` where it is the filter's `query_text`.
    """

    name: str
    arguments: Mapping[str, str]
    required: frozenset[str]
    columns: Mapping[str, str]
    question: str | None


FUNCTIONS = {
    function.name: function
    for function in (
        Function(
            "hybrid_search",
            {
                "query_text": "text",
                "query_embedding": "vector",
                "match_count": "int",
                "rrf_k": "int",
                "full_text_weight": "float8",
                "semantic_weight": "float8",
                "filter": "jsonb",
            },
            frozenset({"query_text", "query_embedding"}),
            DOCUMENTS,
            "query_text",
        ),
        Function(
            "match_documents",
            {"query_embedding": "vector", "match_count": "int", "filter": "jsonb"},
            frozenset({"query_embedding"}),
            _MATCHES,
            None,
        ),
        Function(
            "match_documents_hybrid",
            {"query_embedding": "vector", "match_count": "int", "filter": "jsonb"},
            frozenset({"query_embedding"}),
            _MATCHES,
            "filter",
        ),
        Function(
            "search_documents",
            {
                "query_text": "text",
                "query_embedding": "vector",
                "match_count": "int",
                "mode": "text",
                "filter": "jsonb",
                "sources": "bigint[]",
                "language": "text",
                "since": "timestamptz",
                "until": "timestamptz",
                "query_language": "text",
                "alpha": "float8",
                "rrf_k": "int",
                "pool": "int",
                "highlight": "bool",
                "neighbours": "int",
            },
            frozenset({"query_text"}),
            {
                "id": "bigint",
                "content": "text",
                "metadata": "jsonb",
                "score": "float8",
                "vector_rank": "int",
                "keyword_rank": "int",
                "identifier_rank": "int",
                "similarity": "float8",
                "snippet": "text",
            },
            "query_text",
        ),
    )
}

MOST_LOOKED_AT = 20_000
"""Nearest rows that filters around `match_documents` are applied to, if it is called without a `match_count`."""

_RANGES = {"pool": (1, 1000), "neighbours": (0, 100), "rrf_k": (1, 2**31 - 1)}


def needs_vector(given: Mapping[str, Any]) -> bool:
    """Whether the question of these arguments has to be embedded."""
    return given.get("query_embedding") is None and given.get("mode") != "keyword"


def bind(function: Function, given: Mapping[str, Any], embed: Callable[[str], Vector]) -> dict[str, Any]:
    """The arguments as Postgres takes them; nulls and absent ones are left to their defaults.

    Args:
        given: the arguments as JSON values. `query_text` is taken by every function.
        embed: makes the vector of a question that comes without one; not called in keyword mode.

    Raises:
        DialectError: 404 (PGRST202) if there is no function with such arguments, 400 if a value does not fit.
    """
    _require_names(function, given)
    values = {name: value for name, value in given.items() if value is not None}
    if "filter" in values:
        values["filter"] = _filter(values["filter"])
    question = _text(values.get("query_text", values.get("filter", {}).get("query_text")))
    if needs_vector(values):
        if question is None:
            raise DialectError(
                400,
                "22023",
                f"{function.name} needs query_embedding, or the question as query_text",
                param="query_text",
            )
        values["query_embedding"] = embed(question)
        if function.question is None and "filter" in values:
            values["filter"].pop("query_text", None)
    if function.question == "filter" and question is not None:
        values["filter"] = {**values.get("filter", {}), "query_text": question}
    return {
        name: _converted(name, function.arguments[name], value)
        for name, value in values.items()
        if name in function.arguments
    }


def call(
    function: Function, bound: Mapping[str, Any], params: Params, *, tenant: str, filtered: bool
) -> sql.Composable:
    """`name(argument => …, …)`; appends the values to `params`.

    All but `match_documents` look at the setting `gristmill.tenant`. It is answered by another function, which finds
    all that a small tenant among large ones has.

    Args:
        tenant: whose documents.
        filtered: the client asks for only some of the rows, so more must be looked at than it gets.
    """
    if function.name == "match_documents":
        most = MOST_ROWS if not filtered else MOST_LOOKED_AT
        params.extend((bound["query_embedding"], bound.get("match_count", most), bound.get("filter", "{}"), tenant))
        return sql.SQL(
            "(select id, content, metadata, similarity from search_documents('', %s::vector, %s::int, 'vector',"
            " %s::jsonb, tenant => %s::text)) as match_documents"
        )
    params.extend(bound.values())
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => %s::{}").format(sql.Identifier(name), sql.SQL(function.arguments[name])) for name in bound
    )
    return sql.SQL("{}({})").format(sql.Identifier(function.name), arguments)


def check_dimensions(connection: Connection[Any], vector: Any) -> None:
    """Refuse a vector that the index cannot be asked for, whether or not the tenant has a row to compare it with.

    Raises:
        DialectError: 400, as Postgres says it.
    """
    row = connection.execute(
        "select atttypmod, vector_dims(%s::vector) from pg_attribute"
        " where attrelid = 'documents'::regclass and attname = 'embedding'",
        (vector,),
    ).fetchone()
    if row and row[0] != row[1]:
        raise DialectError(400, "22000", f"different vector dimensions {row[0]} and {row[1]}", OTHER_MODEL)


def as_vector(value: Any) -> PgVector | str:
    """A vector for Postgres, from numbers or its text `[1,2,3]`.

    Raises:
        DialectError: it is neither.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list | np.ndarray):
        try:
            with np.errstate(over="ignore"):  # what becomes infinite is refused by Postgres
                numbers = np.array(value)
                if numbers.ndim == 1 and numbers.dtype.kind in "iuf":
                    return PgVector(numbers.astype(np.float32))
        except (ValueError, OverflowError) as error:  # lists in it, of uneven length
            raise _no_vector() from error
    raise _no_vector()


def _no_vector() -> DialectError:
    return DialectError(
        400, "22P02", "a vector is a JSON array of numbers, or its text", "e.g. [0.1,0.2]", param="embedding"
    )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise _misfit("query_text", "a text")


def _require_names(function: Function, given: Mapping[str, Any]) -> None:
    names = set(given)
    known = {*function.arguments, "query_text"}
    missing = function.required - names - {"query_embedding"}
    if names <= known and not missing:
        return
    asked = ", ".join(sorted(names))
    arguments = ", ".join(function.arguments)
    raise DialectError(
        404,
        "PGRST202",
        f"Could not find the function public.{function.name}({asked}) in the schema cache",
        f"Perhaps you meant to call the function public.{function.name}({arguments})",
        details=f"Searched for the function public.{function.name} with parameters {asked}, but no matches were found"
        " in the schema cache.",
    )


def _converted(name: str, kind: str, value: Any) -> Any:
    if kind == "vector":
        return as_vector(value)
    if kind == "jsonb":
        return json.dumps(value)
    if kind == "bigint[]":
        if isinstance(value, list) and all(type(item) is int and abs(item) < 2**63 for item in value):
            return value
        raise _misfit(name, "an array of whole numbers")
    if kind == "bool":
        if isinstance(value, bool):
            return value
        raise _misfit(name, "true or false")
    if kind == "int":
        return _whole(name, value)
    if kind == "float8":
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        raise _misfit(name, "a number")
    if isinstance(value, str):
        return value
    raise _misfit(name, "a text")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 11:
        value = int(value)  # n8n's expressions easily make a text of a number
    first, last = _RANGES.get(name, (0, 2**31 - 1))
    if type(value) is not int or not first <= value <= last:
        raise _misfit(name, f"a whole number from {first} to {last}")
    return min(value, MOST_ROWS) if name == "match_count" else value


def _filter(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = storable(json.loads(value))
        except (ValueError, RecursionError) as error:
            raise _misfit("filter", "a JSON object") from error
    if not isinstance(value, dict):
        raise _misfit("filter", "a JSON object")
    return dict(value)


def _misfit(name: str, what: str) -> DialectError:
    return DialectError(400, "22023", f"{name} must be {what}", param=name)
