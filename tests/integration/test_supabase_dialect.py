"""Supabase's dialect as its own client and n8n's nodes speak it, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgrest import APIError, CountMethod, SyncPostgrestClient
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.types import Chunk, EmbeddedChunk
from tests.fakes.http_service import client_of
from tests.fakes.openai_server import OpenAIServer, embed
from worker.embedded import Services
from worker.ledger import Ledger, Outcome
from worker.receivers import context
from worker.receivers.app import create_http_app
from worker.receivers.auth import create_key
from worker.receivers.supabase_rpc import DOCUMENTS, FUNCTIONS
from worker.settings import Settings

DIMENSIONS = 8
N8N_INSERT = {"columns": '"content","embedding","metadata"', "select": "*"}
N8N_PREFER = {"Prefer": "resolution=merge-duplicates, return=representation"}


@pytest.fixture
def model() -> Iterator[OpenAIServer]:
    with OpenAIServer(dimensions=DIMENSIONS) as server:
        yield server


@pytest.fixture
def http(tmp_path: Path, services: Services, dsn: str, model: OpenAIServer) -> Iterator[httpx.Client]:
    app = create_http_app(
        Settings(
            home=tmp_path / "home",
            embedder="openai",
            openai_base_url=model.base_url,
            openai_api_key="any",
            embedding_dimensions=DIMENSIONS,
        ),
        Services(dsn, services.broker_url),
    )
    with client_of(app) as client:
        yield client


@pytest.fixture
def supabase(http: httpx.Client) -> Iterator[SyncPostgrestClient]:
    http.headers["apikey"] = "any"
    with SyncPostgrestClient(f"{http.base_url}/rest/v1", http_client=http) as client:
        yield client


def vector(text: str) -> list[float]:
    return [float(value) for value in embed(text, DIMENSIONS)]


def insert(connection: Connection[Any], content: str, **metadata: Any) -> int:
    row = connection.execute(
        "insert into documents (content, metadata, embedding) values (%s, %s, %s) returning id",
        (content, Jsonb(metadata), str(vector(content))),
    ).fetchone()
    assert row is not None
    return int(row[0])


def insert_from_ledger(connection: Connection[Any], content: str) -> tuple[int, int]:
    """Source id and row id of a chunk that the ledger keeps."""
    ledger = Ledger(connection)
    source = ledger.record("file:///a.txt", fingerprint="1", metadata={"tenant": "acme"})
    claim = ledger.claim()
    assert claim is not None
    chunk = Chunk(0, content, None, (), None, 0, len(content), "english", 5)
    outcome = Outcome(b"hash", "recipe", "text/plain", None, None, 5, {})
    assert ledger.commit(claim, outcome, [EmbeddedChunk(chunk, embed(content, DIMENSIONS), "m")])
    row = connection.execute("select id from documents where source_id = %s", (source.source_id,)).fetchone()
    assert row is not None
    return source.source_id, row[0]


# --- functions -------------------------------------------------------------------------------------------------


def test_the_functions_are_declared_as_postgres_has_them(database: Connection[Any]) -> None:
    for function in FUNCTIONS.values():
        rows = database.execute(
            "select proargnames[:pronargs], proargtypes::regtype[]::text[], pronargdefaults,"
            " proargnames[pronargs + 1:], coalesce(proallargtypes[pronargs + 1:]::regtype[]::text[], '{}'),"
            " prorettype::regtype::text from pg_proc where proname = %s",
            (function.name,),
        ).fetchall()
        assert len(rows) == 1, "PostgREST wants one overload"
        names, types, defaults, columns, column_types, returns = rows[0]
        short = {"integer": "int", "double precision": "float8", "timestamp with time zone": "timestamptz"}
        short["boolean"] = "bool"
        arguments = dict(zip(names, [short.get(t, t) for t in types], strict=True))
        ours = {"tenant", "pass"} & set(arguments)  # over HTTP the key or a header says whose documents are meant
        names = [name for name in names if name not in ours]
        assert {name: arguments[name] for name in names} == function.arguments
        assert set(names[: len(names) - defaults + len(ours)]) == function.required
        if returns == "documents":
            assert function.columns is DOCUMENTS
        else:
            assert dict(zip(columns, [short.get(t, t) for t in column_types], strict=True)) == function.columns


def test_the_table_is_declared_as_postgres_has_it(database: Connection[Any]) -> None:
    rows = database.execute(
        "select attname, split_part(format_type(atttypid, atttypmod), '(', 1) from pg_attribute"
        " where attrelid = 'documents'::regclass and attnum > 0"
    ).fetchall()
    short = {"integer": "int", "timestamp with time zone": "timestamptz"}
    assert {name: short.get(kind, kind) for name, kind in rows} == DOCUMENTS


def test_match_documents_as_the_n8n_node_calls_it(http: httpx.Client, database: Connection[Any]) -> None:
    insert(database, "the pump is blocked", tenant="acme")
    insert(database, "the pump is clean", tenant="other")
    insert(database, "invoice of may", tenant="acme")
    body = {"query_embedding": vector("the pump is blocked"), "filter": {"tenant": "acme"}, "match_count": 4}
    answer = http.post("/rest/v1/rpc/match_documents", json=body, headers={"content-profile": "public"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    rows = answer.json()
    assert [row["content"] for row in rows] == ["the pump is blocked", "invoice of may"]
    assert list(rows[0]) == ["id", "content", "metadata", "similarity"]
    assert rows[0]["metadata"] == {"tenant": "acme"} and rows[0]["similarity"] == pytest.approx(1, abs=1e-6)


def test_match_documents_as_the_agents_sdk_chains_it(http: httpx.Client, database: Connection[Any]) -> None:
    for number in range(30):
        insert(database, f"pump number {number}", tenant="big")
    wanted = insert(database, "an invoice", tenant="small", year=2026)
    answer = http.post(
        "/rest/v1/rpc/match_documents",
        params=[("metadata", 'cs.{"tenant":"small"}'), ("metadata->>year", "eq.2026"), ("limit", "4")],
        json={"query_embedding": str(vector("pump number 1"))},
    )
    assert [row["id"] for row in answer.json()] == [wanted]


def test_rows_of_hybrid_search_are_documents_without_vectors(
    supabase: SyncPostgrestClient, database: Connection[Any]
) -> None:
    insert(database, "error E-4012 means a blocked pump")
    question = {"query_text": "E-4012", "query_embedding": vector("E-4012"), "match_count": 3, "rrf_k": 60}
    (row,) = supabase.rpc("hybrid_search", question).execute().data
    assert row["content"] == "error E-4012 means a blocked pump"
    assert {"id", "metadata", "created_at", "source_id"} <= set(row)
    assert not {"embedding", "fts", "bm25"} & set(row)
    (named,) = supabase.rpc("hybrid_search", question).select("id,embedding").execute().data
    assert list(named) == ["id", "embedding"] and len(json.loads(named["embedding"])) == DIMENSIONS


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("hybrid_search", {"query_text": "blocked pump"}),
        ("hybrid_search", {"query_text": "blocked pump", "query_embedding": None}),
        ("search_documents", {"query_text": "blocked pump", "mode": "vector"}),
        ("match_documents", {"query_text": "blocked pump"}),
        ("match_documents", {"filter": {"query_text": "blocked pump", "tenant": "acme"}}),
        ("match_documents_hybrid", {"filter": {"query_text": "blocked pump", "tenant": "acme"}}),
        ("match_documents_hybrid", {"query_text": "blocked pump", "filter": '{"tenant":"acme"}'}),
    ],
)
def test_a_question_without_a_vector_is_embedded_here(
    http: httpx.Client, database: Connection[Any], model: OpenAIServer, name: str, body: dict[str, Any]
) -> None:
    insert(database, "an invoice", tenant="acme")
    insert(database, "blocked pump", tenant="acme")
    answer = http.post(f"/rest/v1/rpc/{name}", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()[0]["content"] == "blocked pump"
    assert model.texts_embedded == 1


def test_the_n8n_node_has_hybrid_search_through_its_filter(http: httpx.Client, database: Connection[Any]) -> None:
    insert(database, "code E-4013 is a leak", tenant="acme")
    insert(database, "code E-4012 is a block", tenant="acme")
    insert(database, "code E-4012 is something else there", tenant="other")
    body = {
        "query_embedding": vector("code E-4013 is a leak"),
        "filter": {"query_text": "E-4012", "tenant": "acme"},
        "match_count": 4,
    }
    rows = http.post("/rest/v1/rpc/match_documents_hybrid", json=body).json()
    assert [row["content"] for row in rows] == ["code E-4012 is a block", "code E-4013 is a leak"]


def test_keyword_mode_needs_no_vector(http: httpx.Client, database: Connection[Any], model: OpenAIServer) -> None:
    insert(database, "blocked pump")
    body = {"query_text": "pump", "mode": "keyword", "highlight": True, "sources": None}
    (row,) = http.post("/rest/v1/rpc/search_documents", json=body).json()
    assert row["vector_rank"] is None and row["keyword_rank"] == 1 and "**pump**" in row["snippet"]
    assert model.texts_embedded == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "told"),
    [
        ("match_documents", {"query_embedding": [1], "k": 4}, 404, "PGRST202", "match_documents(k, query_embedding)"),
        ("hybrid_search", {"query_embedding": [1]}, 404, "PGRST202", "hybrid_search(query_embedding)"),
        ("match_docs", {"a": 1}, 404, "PGRST202", "match_docs(a)"),
        ("pg_sleep", {"seconds": 9}, 404, "PGRST202", "pg_sleep"),
        ("match_documents", {"query_embedding": [1, 2, 3]}, 400, "22000", "different vector dimensions 8 and 3"),
        ("match_documents", {"query_embedding": [1, "x"]}, 400, "22P02", "array of numbers"),
        ("match_documents", {"query_embedding": [[1], [2, 3]]}, 400, "22P02", "array of numbers"),
        ("match_documents", {"query_embedding": [1e300] * 8}, 400, "22000", "infinite"),
        ("match_documents", {"query_embedding": [10**400] * 8}, 400, "22P02", "array of numbers"),
        ("match_documents", {"query_embedding": "[1,2"}, 400, "22P02", "vector"),
        ("match_documents", {"query_embedding": []}, 400, "22000", "at least 1 dimension"),
        ("match_documents", {"query_embedding": True}, 400, "22P02", "array of numbers"),
        ("match_documents", {}, 400, "22023", "query_embedding"),
        ("match_documents", {"query_text": "x", "match_count": -1}, 400, "22023", "match_count"),
        ("match_documents", {"query_text": "x", "match_count": 1.5}, 400, "22023", "match_count"),
        ("match_documents", {"query_text": "x", "filter": [1]}, 400, "22023", "filter"),
        ("match_documents", {"query_text": "x", "filter": "{"}, 400, "22023", "filter"),
        ("match_documents", {"query_text": " "}, 400, "blank_text", "blank"),
        ("match_documents", {"query_text": 7}, 400, "22023", "query_text"),
        ("search_documents", {"query_text": "x", "mode": "magic"}, 400, "22023", "mode 'magic'"),
        ("search_documents", {"query_text": "x", "since": "soon"}, 400, "22007", "timestamp"),
        ("search_documents", {"query_text": "x", "sources": [2**70]}, 400, "22023", "sources"),
        ("search_documents", {"query_text": "x", "pool": 10**9}, 400, "22023", "pool"),
        ("search_documents", {"query_text": "x", "alpha": "much"}, 400, "22023", "alpha"),
        ("search_documents", {"query_text": "x", "query_language": "klingon"}, 400, "42704", "klingon"),
        ("match_documents?nothing=eq.1", {"query_text": "x"}, 400, "42703", "nothing"),
        ("match_documents?id=eq.x", {"query_text": "x"}, 400, "22P02", "bigint"),
        ("match_documents?metadata=cs.%7B", {"query_text": "x"}, 400, "22P02", "json"),
        ("match_documents?content=eq.%00", {"query_text": "x"}, 400, "22000", "NUL"),
    ],
)
def test_a_wrong_call_is_answered_as_postgrest_answers(
    http: httpx.Client, database: Connection[Any], path: str, body: Any, status: int, code: str, told: str
) -> None:
    insert(database, "blocked pump")
    answer = http.post(f"/rest/v1/rpc/{path}", content=json.dumps(body))
    error = answer.json()
    assert (answer.status_code, error["code"]) == (status, code), error
    assert told in error["message"]
    assert set(error) == {"code", "message", "details", "hint"}


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b'{"a": NaN}', b"[" * 100_000, b"9" * 5000, b'"x"'])
def test_a_body_that_is_no_object_is_a_400(http: httpx.Client, body: bytes) -> None:
    for path in ("rpc/match_documents", "rpc/hybrid_search"):
        answer = http.post(f"/rest/v1/{path}", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "PGRST102"), answer.text


def test_what_postgres_cannot_hold_is_taken_out_of_a_question(http: httpx.Client, database: Connection[Any]) -> None:
    insert(database, "blocked pump")
    answer = http.post("/rest/v1/rpc/hybrid_search", content=b'{"query_text": "blo\\u0000cked \\ud800 pump"}')
    assert answer.status_code == 200 and answer.json()[0]["content"] == "blocked pump"


def test_a_zero_vector_is_answered(http: httpx.Client, database: Connection[Any]) -> None:
    insert(database, "blocked pump")
    answer = http.post("/rest/v1/rpc/hybrid_search", json={"query_text": "pump", "query_embedding": [0.0] * 8})
    assert answer.status_code == 200 and len(answer.json()) == 1


def test_an_embedder_that_is_away_is_a_503(http: httpx.Client, model: OpenAIServer) -> None:
    model.misbehave("overloaded", times=20, retry_after="7")
    answer = http.post("/rest/v1/rpc/match_documents", json={"query_text": "pump"})
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
    assert set(answer.json()) == {"code", "message", "details", "hint"}


# --- rows ------------------------------------------------------------------------------------------------------


def rows_like_n8n(count: int) -> list[dict[str, Any]]:
    return [
        {
            "content": f"passage {number}",
            "embedding": vector(f"passage {number}"),
            "metadata": {"source": "blob", "loc": {"lines": {"from": number, "to": number}}},
        }
        for number in range(count)
    ]


def test_an_insert_as_the_n8n_node_sends_it_can_be_found(http: httpx.Client) -> None:
    answer = http.post("/rest/v1/documents", params=N8N_INSERT, json=rows_like_n8n(3), headers=N8N_PREFER)
    assert answer.status_code == 201, answer.text
    assert [row["content"] for row in answer.json()] == ["passage 0", "passage 1", "passage 2"]
    body = {"query_embedding": vector("passage 1"), "filter": {}, "match_count": 1}
    (row,) = http.post("/rest/v1/rpc/match_documents", json=body).json()
    assert row["content"] == "passage 1" and row["metadata"]["loc"] == {"lines": {"from": 1, "to": 1}}


def test_the_same_rows_again_are_answered_with_those_there(http: httpx.Client, database: Connection[Any]) -> None:
    first = http.post("/rest/v1/documents", params=N8N_INSERT, json=rows_like_n8n(5), headers=N8N_PREFER).json()
    again = http.post("/rest/v1/documents", params=N8N_INSERT, json=rows_like_n8n(6), headers=N8N_PREFER).json()
    assert [row["id"] for row in again[:5]] == [row["id"] for row in first]
    assert database.execute("select count(*) from documents").fetchone() == (6,)


def test_rows_without_a_vector_are_embedded_once(
    supabase: SyncPostgrestClient, database: Connection[Any], model: OpenAIServer
) -> None:
    rows = [
        {"content": "La pompe est bloquée par des feuilles mortes : nettoyez la crépine avant de la relancer."},
        {"content": "the pump is blocked by leaves"},
    ]
    for _ in range(2):
        supabase.table("documents").insert(rows).execute()
    found = database.execute("select language, model, embedding::text, metadata from documents order by id").fetchall()
    assert [row[0] for row in found] == ["french", "english"]
    assert found[1][1] is not None and found[1][3] == {}
    assert json.loads(found[1][2]) == pytest.approx(vector(rows[1]["content"]), abs=1e-6)
    assert model.texts_embedded == 2


def test_an_upsert_with_an_id_replaces_the_row(supabase: SyncPostgrestClient, database: Connection[Any]) -> None:
    number = insert(database, "old", a=1)
    new = {"id": number, "content": "new", "embedding": vector("new"), "metadata": {"b": 2}}
    assert [row["id"] for row in supabase.table("documents").upsert([new]).execute().data] == [number]
    row = database.execute(
        "select content, metadata, embedding::text, content_hash = sha256('new') from documents"
    ).fetchone()
    assert row is not None and row[:2] == ("new", {"b": 2}) and row[3]
    assert json.loads(row[2]) == pytest.approx(vector("new"), abs=1e-6)


def test_minimal_returns_nothing_and_select_chooses(http: httpx.Client) -> None:
    answer = http.post("/rest/v1/documents", json={"content": "x"}, headers={"Prefer": "return=minimal"})
    assert (answer.status_code, answer.content) == (201, b"")
    chosen = http.post(
        "/rest/v1/documents?select=content", json={"content": "y"}, headers={"Prefer": "return=representation"}
    )
    assert chosen.json() == [{"content": "y"}]


def test_all_rows_or_none(http: httpx.Client, database: Connection[Any]) -> None:
    rows = [{"content": "good", "embedding": vector("good")}, {"content": "bad", "embedding": [1, 2]}]
    answer = http.post("/rest/v1/documents", json=rows)
    assert (answer.status_code, answer.json()["message"]) == (400, "expected 8 dimensions, not 2")
    assert "/v1/embeddings" in answer.json()["hint"]
    assert database.execute("select count(*) from documents").fetchone() == (0,)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"content": None}, "23502"),
        ({"metadata": {}}, "23502"),
        ({"content": 5}, "22023"),
        ({"content": " "}, "blank_text"),
        ({"content": "x", "metadata": "y"}, "22023"),
        ({"content": "x", "source_id": 1}, "PGRST204"),
        ({"content": "x", "tenant": "other"}, "PGRST204"),
        ({"content": "x", "id": 99}, "428C9"),
        ({"content": "x", "id": 2**63 - 1}, "428C9"),
        ({"content": "x", "id": "6f0c"}, "22P02"),
        ({"content": "x", "embedding": "no"}, "22P02"),
        ("x", "PGRST102"),
    ],
)
def test_a_row_that_does_not_fit_is_a_400(http: httpx.Client, database: Connection[Any], row: Any, code: str) -> None:
    answer = http.post("/rest/v1/documents", json=[row])
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert database.execute("select count(*) from documents").fetchone() == (0,)


def test_nul_and_surrogates_are_taken_out_of_rows(http: httpx.Client, database: Connection[Any]) -> None:
    body = b'{"content": "a\\u0000b \\ud83d c", "metadata": {"k\\u0000": ["\\u0000v"]}}'
    assert http.post("/rest/v1/documents", content=body).status_code == 201
    assert database.execute("select content, metadata from documents").fetchone() == ("ab ? c", {"k": ["v"]})


def test_reading_with_filters_order_and_count(supabase: SyncPostgrestClient, database: Connection[Any]) -> None:
    for number in range(12):
        insert(database, f"passage {number}", number=number, tenant="even" if number % 2 == 0 else "odd")
    table = supabase.table("documents")
    found = table.select("content", count=CountMethod.exact).eq("metadata->>tenant", "even").order("id", desc=True)
    answer = found.range(1, 2).execute()
    assert [row["content"] for row in answer.data] == ["passage 8", "passage 6"] and answer.count == 6
    contained = table.select("*").contains("metadata", {"number": 3}).execute().data
    assert [row["content"] for row in contained] == ["passage 3"]
    assert len(table.select("id").in_("content", ["passage 1", "passage, 2", "passage 3"]).execute().data) == 2
    assert len(table.select("id").like("content", "passage 1%").execute().data) == 3
    assert len(table.select("id").is_("source_id", "null").execute().data) == 12
    assert table.select("title:metadata->number").eq("content", "passage 7").single().execute().data == {"title": 7}
    with pytest.raises(APIError) as caught:
        table.select("*").single().execute()
    assert caught.value.code == "PGRST116"


def test_change_and_delete_by_filter(supabase: SyncPostgrestClient, database: Connection[Any]) -> None:
    first, second = insert(database, "one", tenant="a"), insert(database, "two", tenant="b")
    changed = supabase.table("documents").update({"content": "uno"}).eq("metadata->>tenant", "a").execute().data
    assert [row["id"] for row in changed] == [first]
    row = database.execute(
        "select embedding::text, content_hash = sha256('uno'), model is not null from documents where id = %s", (first,)
    ).fetchone()
    assert row is not None and row[1:] == (True, True)
    assert json.loads(row[0]) == pytest.approx(vector("uno"), abs=1e-6)
    gone = supabase.table("documents").delete().eq("id", first).execute().data
    assert [row["content"] for row in gone] == ["uno"]
    assert database.execute("select id from documents").fetchall() == [(second,)]


def test_the_n8n_node_deletes_with_minimal(http: httpx.Client, database: Connection[Any]) -> None:
    insert(database, "one", tenant="a")
    answer = http.delete("/rest/v1/documents", params={"metadata->>tenant": "eq.a"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert database.execute("select count(*) from documents").fetchone() == (0,)


@pytest.mark.parametrize("query", ["", "?limit=5", "?select=id", "?order=id"])
def test_everything_at_once_is_neither_deleted_nor_changed(
    http: httpx.Client, database: Connection[Any], query: str
) -> None:
    insert(database, "one")
    for answer in (
        http.delete(f"/rest/v1/documents{query}"),
        http.patch(f"/rest/v1/documents{query}", json={"content": "x"}),
    ):
        assert answer.status_code == 400 and "requires a WHERE clause" in answer.json()["message"]
    assert database.execute("select content from documents").fetchall() == [("one",)]


def test_rows_of_the_ledger_are_not_touched(http: httpx.Client, database: Connection[Any]) -> None:
    source, number = insert_from_ledger(database, "kept in step with its file")
    foreign = insert(database, "somebody's own", tenant="acme")
    where = {"metadata->>tenant": "eq.acme"}
    merge = {"Prefer": "resolution=merge-duplicates"}
    answers = [
        http.delete("/rest/v1/documents", params=where),
        http.patch("/rest/v1/documents", params=where, json={"metadata": {}}),
        http.post("/rest/v1/documents", json=[{"id": number, "content": "x"}], headers=merge),
    ]
    for answer in answers:
        assert answer.status_code == 409, answer.text
        assert f"DELETE /sources/{source}" in answer.json()["hint"]
    rows = database.execute("select id, content from documents order by id").fetchall()
    assert rows == [(number, "kept in step with its file"), (foreign, "somebody's own")]
    spared = http.delete("/rest/v1/documents", params={**where, "source_id": "is.null"})
    assert spared.status_code == 204
    assert database.execute("select id from documents").fetchall() == [(number,)]


def test_an_id_again_without_merging_is_a_conflict(http: httpx.Client, database: Connection[Any]) -> None:
    number = insert(database, "one")
    rows = [{"id": number, "content": "two"}]
    answer = http.post("/rest/v1/documents", json=rows)
    assert (answer.status_code, answer.json()["code"]) == (409, "23505")
    ignored = http.post("/rest/v1/documents", json=rows, headers={"Prefer": "resolution=ignore-duplicates"})
    assert ignored.status_code == 201
    assert database.execute("select content from documents").fetchall() == [("one",)]


# --- the rest --------------------------------------------------------------------------------------------------


def test_tables_are_listed_for_the_nodes_drop_down(http: httpx.Client) -> None:
    for path in ("/rest/v1/", "/rest/v1"):
        paths = http.get(path).json()["paths"]
        tables = [name for name in paths if name != "/" and not name.startswith("/rpc/")]
        assert tables == ["/documents"] and "/rpc/match_documents" in paths


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/rest/v1/n8n_vectors", 404, "PGRST205"),
        ("POST", "/rest/v1/api_keys", 404, "PGRST205"),
        ("PUT", "/rest/v1/documents", 405, "PGRST117"),
        ("GET", "/rest/v1/rpc/match_documents", 405, "PGRST117"),
    ],
)
def test_other_tables_and_verbs_do_not_exist(
    http: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_keys_are_taken_as_supabase_clients_send_them(
    tmp_path: Path, services: Services, dsn: str, database: Connection[Any]
) -> None:
    search, both = create_key(database, "search", ["search"]), create_key(database, "both", ["search", "ingest"])
    app = create_http_app(Settings(home=tmp_path / "home", require_key="always"), Services(dsn, services.broker_url))
    row = {"content": "x", "embedding": vector("x")}

    def headers(key: str) -> dict[str, str]:
        return {"apikey": key, "Authorization": f"Bearer {key}"}

    with client_of(app) as http:
        assert http.get("/rest/v1/documents", headers={"apikey": search}).status_code == 200
        assert http.get("/rest/v1/documents", headers={"Authorization": f"Bearer {search}"}).status_code == 200
        assert http.post("/rest/v1/documents", json=row, headers=headers(both)).status_code == 201
        for key, status in ((search, 403), ("gm_wrong", 401)):
            answer = http.post("/rest/v1/documents", json=row, headers=headers(key))
            assert answer.status_code == status
            assert set(answer.json()) == {"code", "message", "details", "hint"}
            assert answer.json()["hint"] and "gm_" not in answer.text


def test_a_database_that_is_away_is_a_503(tmp_path: Path, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CONNECTION_SECONDS", 0.3)
    app = create_http_app(
        Settings(home=tmp_path / "home"),
        Services("postgresql://127.0.0.1:1/none?connect_timeout=1", services.broker_url),
    )
    with client_of(app) as http:
        answer = http.get("/rest/v1/documents")
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert int(answer.headers["retry-after"]) >= 1 and "127.0.0.1" not in answer.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({name for function in FUNCTIONS.values() for name in function.arguments} | {"id", "content"})


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # the threads of the service do, meanwhile
@given(
    st.sampled_from(["documents", *(f"rpc/{name}" for name in FUNCTIONS)]),
    st.dictionaries(st.sampled_from(NAMES), JSON | st.lists(st.floats(-1, 1), min_size=8, max_size=8), max_size=5)
    | JSON,
    st.dictionaries(st.sampled_from(["select", "order", "id", "metadata", "columns"]) | st.text(max_size=5), st.text()),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_nothing_sent_is_a_500(http: httpx.Client, path: str, body: Any, query: dict[str, str]) -> None:
    params = {key.encode("utf-8", "replace"): value.encode("utf-8", "replace") for key, value in query.items()}
    answer = http.post(f"/rest/v1/{path}", content=json.dumps(body), params=httpx.QueryParams(params))  # type: ignore[arg-type]
    assert answer.status_code < 500, answer.text
