"""Supabase's dialect: what supabase-js, supabase-py, LangChain and n8n's Supabase nodes send to PostgREST.

`/rest/v1/rpc/NAME` calls the search functions, `/rest/v1/documents` reads and writes rows that others own. Rows that
belong to a document of the ledger can be read here, never changed. All is the caller's tenant's: a row of another is as
one that is not there. Answers and errors have PostgREST's form. Ours alone: a vector that is missing is made here, with
the model of the index; a row that is there already is answered with, not doubled; vectors and other internals are left
out of rows unless `select` names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import JSONResponse
from psycopg import Connection, sql
from starlette.concurrency import run_in_threadpool

from pipelines.search import check_model
from pipelines.types import Vector
from worker.receivers import supabase_rows
from worker.receivers.auth import Caller, require
from worker.receivers.context import Context, Shared
from worker.receivers.dialect import DialectError, Failure, body_of, parsed, route_class
from worker.receivers.lanes import Lane
from worker.receivers.supabase_filters import Params, Query, column_names, parse_query
from worker.receivers.supabase_rpc import DOCUMENTS, FUNCTIONS, Function, bind, call, check_dimensions, needs_vector

SINGLE = "application/vnd.pgrst.object+json"
_JSON = "application/json; charset=utf-8"


def render(failure: Failure) -> Response:
    """An error in PostgREST's form: `{code, message, details, hint}`."""
    content = {
        "code": failure.code,
        "message": failure.message,
        "details": failure.details,
        "hint": failure.hint,
    }
    return JSONResponse(content, failure.status, failure.headers)


router = APIRouter(prefix="/rest/v1", tags=["supabase"], route_class=route_class(render))

RawBody = Annotated[bytes, Depends(body_of)]
Searcher = Annotated[Caller, Depends(require("search"))]
Writer = Annotated[Caller, Depends(require("ingest"))]
_may_search = [Depends(require("search"))]
_FILTERS = "Filters, `select`, `order`, `limit` and `offset` in the query string are PostgREST's."


def _takes(example: Any, kind: str | list[str] = "object") -> dict[str, Any]:
    """What the OpenAPI document says of a body that is not parsed by FastAPI."""
    kinds = [kind] if isinstance(kind, str) else kind
    schema = {"anyOf": [{"type": one} for one in kinds]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


@router.post(
    "/rpc/{name}",
    summary="Call a search function by the names of its arguments",
    description="A question that comes without query_embedding is embedded here. " + _FILTERS,
    openapi_extra=_takes({"query_text": "when is the pump serviced?", "match_count": 5}),
)
async def call_function(
    request: Request,
    context: Shared,
    caller: Searcher,
    body: RawBody,
    name: Annotated[str, Path(examples=["hybrid_search"])],
) -> Response:
    """Rows of a function, as a JSON array."""
    function, given, query = await run_in_threadpool(_asked, name, body, request.query_params.multi_items())
    lane = context.lanes.embedding if needs_vector(given) else context.lanes.search
    bound = await lane.run(bind, function, given, lambda text: _embedded(context, text))
    return await context.lanes.search.run(_called, request, context, caller.tenant, function, bound, query)


def _asked(name: str, body: bytes, parameters: Sequence[tuple[str, str]]) -> tuple[Function, dict[str, Any], Query]:
    """Which function is called with which arguments, and what is wanted of its rows."""
    given = parsed(body, "PGRST102") if body else {}
    if not isinstance(given, dict):
        raise DialectError(400, "PGRST102", "the body must be a JSON object of arguments")
    if name not in FUNCTIONS:
        names = ", ".join(sorted(given))
        raise DialectError(
            404,
            "PGRST202",
            f"Could not find the function public.{name[:100]}({names[:300]}) in the schema cache",
            f"there are: {', '.join(FUNCTIONS)}",
        )
    function = FUNCTIONS[name]
    query = parse_query(parameters, function.columns, table=name)
    return function, given, query


def _called(
    request: Request, context: Context, tenant: str, function: Function, bound: Mapping[str, Any], query: Query
) -> Response:
    filtered = bool(query.conditions or query.order)
    with context.connection() as connection, connection.transaction():
        connection.execute("select set_config('gristmill.tenant', %s, true)", (tenant,))
        if "query_embedding" in bound:
            check_dimensions(connection, bound["query_embedding"])
        params: Params = []
        columns = query.columns(params)
        source = call(function, bound, params, tenant=tenant, filtered=filtered)
        only = tenant if "tenant" in function.columns else None
        text, count = _rows(connection, columns, source, query, params, only)
    return _answer(request, text, count)


@router.get("/documents", summary="Read rows", description=f"At most 1,000 at a time. {_FILTERS}")
def read_documents(request: Request, context: Shared, caller: Searcher) -> Response:
    """Rows of the table, as a JSON array."""
    query = parse_query(request.query_params.multi_items(), DOCUMENTS)
    table = sql.Identifier("documents")
    total = "*"
    with context.connection() as connection, connection.transaction():
        params: Params = []
        columns = query.columns(params)
        text, count = _rows(connection, columns, table, query, params, caller.tenant)
        if "count=exact" in request.headers.get("prefer", ""):
            params = []
            where = query.where(params, caller.tenant)
            row = connection.execute(sql.SQL("select count(*) from documents{}").format(where), params).fetchone()
            total = str(row[0]) if row else "*"
    span = f"{query.offset}-{query.offset + count - 1}" if count else "*"
    return _answer(request, text, count, headers={"Content-Range": f"{span}/{total}"})


@router.post(
    "/documents",
    status_code=201,
    summary="Insert or upsert rows",
    description="Rows of content, metadata, embedding (made here where it is missing), language and, to change a row,"
    " its id. `Prefer: resolution=merge-duplicates` upserts by id.",
    openapi_extra=_takes(
        [{"content": "The pump is serviced in May.", "metadata": {"topic": "pump"}}], ["array", "object"]
    ),
)
async def write_documents(request: Request, context: Shared, caller: Writer, body: RawBody) -> Response:
    """Insert; a row that is there already with the same content and metadata is left as it is."""
    asked = request.query_params
    if asked.get("on_conflict", "id") != "id":
        raise DialectError(400, "42P10", "rows can conflict by id only", "leave on_conflict out")
    names = column_names(asked["columns"]) if "columns" in asked else None
    given = await run_in_threadpool(parsed, body, "PGRST102")
    rows = await run_in_threadpool(supabase_rows.rows_of, given, names)
    return await _lane(context, rows).run(_write, request, context, caller, rows)


def _lane(context: Context, given: Any) -> Lane:
    """Where rows are written: those that bring their vectors do not wait with those that need the embedder."""
    rows = [row for row in (given if isinstance(given, list) else [given]) if isinstance(row, dict)]
    bare = any(row.get("content") is not None and row.get("embedding") is None for row in rows)
    return context.lanes.embedding if bare else context.lanes.intake


def _write(request: Request, context: Context, caller: Caller, rows: list[dict[str, Any]]) -> Response:
    query = parse_query([(k, v) for k, v in request.query_params.multi_items() if k == "select"], DOCUMENTS)
    prefer = request.headers.get("prefer", "")
    ids = supabase_rows.write(
        context,
        caller.tenant,
        rows,
        merge="resolution=merge-duplicates" in prefer,
        ignore="resolution=ignore-duplicates" in prefer,
    )
    return _written(request, context, caller, ids, query, status=201)


@router.patch(
    "/documents",
    summary="Change rows",
    description=f"At least one filter is needed. New content without an embedding is embedded here. {_FILTERS}",
    openapi_extra=_takes({"metadata": {"topic": "valve"}}),
)
async def change_documents(request: Request, context: Shared, caller: Writer, body: RawBody) -> Response:
    """Change all rows that the filters find."""
    given = await run_in_threadpool(parsed, body, "PGRST102")
    return await _lane(context, given).run(_change, request, context, caller, given)


def _change(request: Request, context: Context, caller: Caller, given: Any) -> Response:
    query = parse_query(request.query_params.multi_items(), DOCUMENTS)
    ids = supabase_rows.change(context, caller.tenant, query, given)
    return _written(request, context, caller, ids, query, status=200)


@router.delete(
    "/documents",
    summary="Delete rows",
    description=f"At least one filter is needed. {_FILTERS}",
)
def delete_documents(request: Request, context: Shared, caller: Writer) -> Response:
    """Delete all rows that the filters find."""
    query = parse_query(request.query_params.multi_items(), DOCUMENTS)
    text, count = supabase_rows.delete(context, caller.tenant, query)
    if "return=representation" not in request.headers.get("prefer", ""):
        return Response(status_code=204)
    return _answer(request, text, count)


@router.get("/", dependencies=_may_search, summary="Tables and functions, as PostgREST describes them")
@router.get("", dependencies=_may_search, include_in_schema=False)
def describe() -> dict[str, Any]:
    """An OpenAPI 2 document, from which clients list tables and columns."""
    formats = {"text": "string", "jsonb": "object", "bigint": "integer", "int": "integer", "timestamptz": "string"}
    properties = {name: {"type": formats.get(kind, "string"), "format": kind} for name, kind in DOCUMENTS.items()}
    properties["id"]["description"] = "Note:\nThis is a Primary Key.<pk/>"
    calls: dict[str, Any] = {f"/rpc/{name}": {"post": {"tags": [f"(rpc) {name}"]}} for name in FUNCTIONS}
    table = {verb: {"tags": ["documents"]} for verb in ("get", "post", "patch", "delete")}
    return {
        "swagger": "2.0",
        "info": {"title": "Gristmill, as PostgREST describes a schema", "version": "1"},
        "paths": {"/": {"get": {"tags": ["Introspection"]}}, "/documents": table, **calls},
        "definitions": {"documents": {"type": "object", "required": ["id", "content"], "properties": properties}},
    }


@router.api_route(
    "/{table:path}",
    methods=["GET", "POST", "PATCH", "PUT", "DELETE"],
    include_in_schema=False,
    dependencies=_may_search,
)
def no_such_table(table: str, request: Request) -> Response:
    """Whatever else is asked for, refused in the dialect."""
    if table in ("", "documents") or table.startswith("rpc/"):
        raise DialectError(405, "PGRST117", f"Unsupported HTTP method: {request.method}")
    raise DialectError(
        404,
        "PGRST205",
        f"Could not find the table 'public.{table[:100]}' in the schema cache",
        "Perhaps you meant the table 'public.documents'",
    )


def _embedded(context: Context, text: str) -> Vector:
    embedder = context.embedder()
    with context.connection() as connection:
        check_model(connection, embedder)
    return embedder.embed_query(text)


def _rows(
    connection: Connection[Any],
    columns: sql.Composable,
    source: sql.Composable,
    query: Query,
    params: Params,
    tenant: str | None,
) -> tuple[str, int]:
    """The rows as JSON text, made by Postgres as PostgREST has it made, and their number.

    With a tenant only its own; None where the rows do not say whose they are.

    `params` hold the values of `columns` and `source`; those of the query's other parts are added here.
    """
    statement = sql.SQL("with found as (select {} from {}{}{}) {}").format(
        columns, source, query.where(params, tenant), query.tail(params), supabase_rows.AS_JSON
    )
    row = connection.execute(statement, params).fetchone()
    assert row is not None, "an aggregate always has a row"
    return row[0], row[1]


def _written(
    request: Request, context: Context, caller: Caller, ids: list[int], query: Query, *, status: int
) -> Response:
    if "return=representation" not in request.headers.get("prefer", ""):
        return Response(status_code=status if status == 201 else 204)
    with context.connection() as connection:
        text, count = supabase_rows.by_ids(connection, caller.tenant, ids, query)
    return _answer(request, text, count, status=status)


def _answer(
    request: Request, text: str, count: int, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    if SINGLE not in request.headers.get("accept", ""):
        return Response(text, status, headers, media_type=_JSON)
    if count != 1:
        raise DialectError(
            406,
            "PGRST116",
            "Cannot coerce the result to a single JSON object",
            details=f"The result contains {count} rows",
        )
    return Response(text.strip()[1:-1], status, headers, media_type=f"{SINGLE}; charset=utf-8")
