"""Rows that others own: insert, upsert, change and delete, with vectors made where they are missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection, sql

from pipelines.language import detect_language
from pipelines.search import check_model
from pipelines.store import PostgresVectors
from worker.receivers.context import Context
from worker.receivers.dialect import DialectError
from worker.receivers.supabase_filters import Params, Query
from worker.receivers.supabase_rpc import as_vector

WRITABLE = ("id", "content", "metadata", "embedding", "language")
MOST_ROWS_WRITTEN = 10_000

AS_JSON = sql.SQL("select coalesce(json_agg(found), '[]')::text, count(*) from found")

Row = dict[str, Any]


def rows_of(body: Any, names: Sequence[str] | None = None) -> list[Row]:
    """The rows of a body, checked.

    Args:
        names: only these columns are taken; None for all there are.

    Raises:
        DialectError: 400, it is not rows, or a column may not be written.
    """
    rows = body if isinstance(body, list) else [body]
    if not all(isinstance(row, dict) for row in rows):
        raise DialectError(400, "PGRST102", "the body must be a JSON object, or an array of them")
    if len(rows) > MOST_ROWS_WRITTEN:
        raise DialectError(400, "too_many_rows", f"more than {MOST_ROWS_WRITTEN:,} rows", "send fewer rows at a time")
    for name in dict.fromkeys([*(names or ()), *(key for row in rows for key in row)]):
        if name not in WRITABLE and (names is None or name in names):
            raise DialectError(
                400,
                "PGRST204",
                f"Could not find the '{name[:100]}' column of 'documents' in the schema cache",
                f"these can be written: {', '.join(WRITABLE)}",
                param=name,
            )
    return [{name: _checked(name, row[name]) for name in row if names is None or name in names} for row in rows]


def write(context: Context, tenant: str, rows: list[Row], *, merge: bool = False, ignore: bool = False) -> list[int]:
    """Insert rows of a tenant, all or none.

    Args:
        merge: a row whose id is there replaces what is there.
        ignore: a row whose id is there is left out.

    Returns:
        The id of each row, in order, also of those that were there already; left out ones missing.

    Raises:
        DialectError: 400, a row has no content, or an id that no row of the tenant has; 409, the row of that id belongs
            to a document of the ledger.
    """
    for row in rows:
        if row.get("content") is None:
            raise DialectError(400, "23502", 'null value in column "content" of relation "documents"', param="content")
    _complete(context, rows)
    action = sql.SQL("")
    if merge:
        action = sql.SQL(
            " on conflict (id) do update set content = excluded.content, metadata = excluded.metadata,"
            " embedding = excluded.embedding, language = excluded.language, model = excluded.model,"
            " content_hash = excluded.content_hash, updated_at = now()"
            " where documents.source_id is null and documents.tenant = excluded.tenant"
        )
    elif ignore:
        action = sql.SQL(" on conflict (id) do nothing")
    with context.connection() as connection, connection.transaction():
        _refuse_ids(connection, tenant, [row["id"] for row in rows if row.get("id") is not None])
        found = [_insert(connection, row, tenant, action) for row in rows]
    return [number for number in found if number is not None]


def change(context: Context, tenant: str, query: Query, body: Any) -> list[int]:
    """Change the rows of a tenant that a query's conditions find; their ids.

    Raises:
        DialectError: 400, there is no condition or nothing to change; 409, one of the rows belongs to the ledger.
    """
    _require_conditions(query, "UPDATE")
    rows = rows_of(body)
    if len(rows) != 1 or "id" in rows[0]:
        raise DialectError(400, "PGRST102", "the body must be one JSON object, without an id")
    row = rows[0]
    if not row:
        return []
    if row.get("content") is not None:
        row.setdefault("language", None)
        _complete(context, [row])
    elif row.get("embedding") is not None:
        row["model"] = None
    params: Params = list(row.values())
    assignments = sql.SQL(", ").join(
        sql.SQL("{} = %s{}").format(sql.Identifier(name), sql.SQL(_CASTS.get(name, ""))) for name in row
    )
    where = query.where(params, tenant)
    with context.connection() as connection, connection.transaction():
        _refuse_ledger_rows(connection, tenant, query)
        found = connection.execute(
            sql.SQL("update documents set {}, updated_at = now(){} and source_id is null returning id").format(
                assignments, where
            ),
            params,
        ).fetchall()
    return [number for (number,) in found]


def delete(context: Context, tenant: str, query: Query) -> tuple[str, int]:
    """Delete the rows of a tenant that a query's conditions find; them as JSON text, and how many.

    Raises:
        DialectError: 400, there is no condition; 409, one of the rows belongs to the ledger.
    """
    _require_conditions(query, "DELETE")
    params: Params = []
    where = query.where(params, tenant)
    columns = query.columns(params)
    with context.connection() as connection, connection.transaction():
        _refuse_ledger_rows(connection, tenant, query)
        statement = sql.SQL("with found as (delete from documents{} and source_id is null returning {}) {}").format(
            where, columns, AS_JSON
        )
        row = connection.execute(statement, params).fetchone()
    assert row is not None, "an aggregate always has a row"
    return row[0], row[1]


def by_ids(connection: Connection[Any], tenant: str, ids: Sequence[int], query: Query) -> tuple[str, int]:
    """Rows of a tenant by id, in this order, as JSON text, with the columns of a query; and how many."""
    params: Params = []
    columns = query.columns(params)
    statement = sql.SQL(
        "with found as (select {} from unnest(%s::bigint[]) with ordinality as wanted(number, place)"
        " join documents on documents.id = wanted.number where tenant = %s order by wanted.place) {}"
    ).format(columns, AS_JSON)
    row = connection.execute(statement, [*params, list(ids), tenant]).fetchone()
    assert row is not None, "an aggregate always has a row"
    return row[0], row[1]


_CASTS = {"metadata": "::jsonb", "embedding": "::vector"}


def _checked(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "embedding":
        return as_vector(value)
    if name == "metadata":
        if not isinstance(value, dict):
            raise DialectError(400, "22023", "metadata must be a JSON object", param=name)
        return json.dumps(value)
    if name == "id":
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if type(value) is not int or not 0 < value < 2**63:
            raise DialectError(400, "22P02", "an id is a whole number that the table gave", "leave id out", param=name)
        return value
    if not isinstance(value, str):
        raise DialectError(400, "22023", f"{name} must be a text", param=name)
    return value


def _complete(context: Context, rows: Sequence[Row]) -> None:
    """Give each row a hash, a language, metadata and a vector where it has none."""
    default = context.settings.default_language
    for row in rows:
        row["language"] = row.get("language") or detect_language(row["content"], default)
        row["content_hash"] = hashlib.sha256(row["content"].encode()).digest()
        row["model"] = None
    bare = [row for row in rows if row.get("embedding") is None]
    if not bare:
        return
    embedder = context.embedder()
    with context.connection() as connection:
        check_model(connection, embedder)
        known = PostgresVectors(connection).get(embedder.model, [row["content_hash"] for row in bare])
    new = {row["content_hash"]: row["content"] for row in bare if row["content_hash"] not in known}
    if new:
        made = dict(zip(new, embedder.embed_documents(list(new.values())), strict=True))
        with context.connection() as connection:
            PostgresVectors(connection).put(embedder.model, made)
        known = {**known, **made}
    for row in bare:
        row["embedding"] = as_vector(known[row["content_hash"]])
        row["model"] = embedder.model


def _insert(connection: Connection[Any], row: Mapping[str, Any], tenant: str, action: sql.Composable) -> int | None:
    """Insert a row; its id, that of the same row where there is one, None where it was left out."""
    values = {**row, "tenant": tenant, "metadata": row.get("metadata") or "{}"}
    if values.get("id") is None:
        values.pop("id", None)
    statement = sql.SQL("insert into documents ({}) values ({}){} returning id").format(
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(sql.SQL("%s" + _CASTS.get(name, "")) for name in values),
        action,
    )
    found = connection.execute(statement, list(values.values())).fetchone()
    if found is None:
        found = connection.execute(
            "select id from documents where source_id is null and content_hash = %s and metadata = %s::jsonb"
            " and tenant = %s order by id limit 1",
            (values["content_hash"], values["metadata"], tenant),
        ).fetchone()
    return found[0] if found else None


def _refuse_ids(connection: Connection[Any], tenant: str, ids: list[int]) -> None:
    """Take no id that none of the tenant's rows has.

    One that the table has not given yet would be given a second time, later; and of one that is free while others are
    not, anybody could learn which rows other tenants have.
    """
    if not ids:
        return
    found = dict(
        connection.execute(
            "select id, source_id from documents where tenant = %s and id = any(%s)", (tenant, ids)
        ).fetchall()
    )
    for number in ids:
        if number not in found:
            raise DialectError(400, "428C9", f"no row here has the id {number}", "leave id out of new rows", param="id")
        if found[number] is not None:
            raise _belongs_to_ledger(found[number])


def _require_conditions(query: Query, verb: str) -> None:
    if not query.conditions:
        raise DialectError(400, "21000", f"{verb} requires a WHERE clause", "add a filter, e.g. id=eq.5")


def _refuse_ledger_rows(connection: Connection[Any], tenant: str, query: Query) -> None:
    params: Params = []
    where = query.where(params, tenant)
    row = connection.execute(
        sql.SQL("select source_id from documents{} and source_id is not null limit 1").format(where), params
    ).fetchone()
    if row:
        raise _belongs_to_ledger(row[0])


def _belongs_to_ledger(source_id: int) -> DialectError:
    return DialectError(
        409,
        "source_owned",
        f"a row belongs to document {source_id}, which Gristmill keeps in step with its source",
        f"send the document anew, or DELETE /sources/{source_id}; a filter source_id=is.null spares such rows",
    )
