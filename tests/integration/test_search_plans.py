"""At 20,000 chunks every search goes through the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from pipelines.database import connect

# These fill tables of thousands of rows, and the machine may be at work on something else.
pytestmark = pytest.mark.timeout(400)

ROWS = 20_000
FILL = """
insert into documents (content, embedding, metadata, language)
select 'chunk ' || n || ' about word' || n %% 997 || ' and thing' || n %% 89 || ' code QX-' || n,
       (select array_agg(sin(n * k * 0.7 + k)) from generate_series(1, 8) k)::vector,
       jsonb_build_object('group', n %% 500),
       case when n %% 3 = 0 then 'french' else 'english' end
from generate_series(1, %s) n
"""


@pytest.fixture(scope="module")
def large(services: Any, migrated_template: str) -> Iterator[str]:
    """DSN of a database with 20,000 chunks, indexed and analysed."""
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        admin.execute(f"create database large template {migrated_template}".encode())
    dsn = services.database_url.replace("/gristmill?", "/large?")
    with connect(dsn) as connection:
        index = connection.execute("select pg_get_indexdef('documents_embedding'::regclass)").fetchone()
        assert index is not None
        connection.execute("drop index documents_embedding")
        # Nobody inserts any of these twice, and to look whether somebody does takes most of the time.
        connection.execute("alter table documents disable trigger documents_skip_known")
        connection.execute(FILL, (ROWS,))
        connection.execute("alter table documents enable trigger documents_skip_known")
        connection.execute(index[0].encode())
        connection.execute("vacuum analyze documents")
    yield dsn
    with psycopg.connect(services.database_url, autocommit=True) as admin:
        admin.execute("drop database large with (force)")


@pytest.fixture
def explain(large: str) -> Iterator[Callable[..., str]]:
    """Run a query; the plans of all statements inside it, as auto_explain sees them."""
    with connect(large) as connection:
        yield lambda query, *values: plans(connection, query, *values)


def plans(connection: Connection[Any], query: str, *values: Any) -> str:
    seen: list[str] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        seen.append(diagnostic.message_primary or "")

    connection.add_notice_handler(keep)
    connection.execute("load 'auto_explain'")
    connection.execute("set auto_explain.log_min_duration = 0")
    connection.execute("set auto_explain.log_nested_statements = on")
    connection.execute("set client_min_messages = log")
    connection.execute(query.encode(), values)
    connection.execute("set auto_explain.log_min_duration = -1")
    connection.remove_notice_handler(keep)
    return "\n".join(seen)


VECTOR = "[1,0.5,0.2,0.1,0,0,0.3,0.4]"
CALLS = {
    "tutorial call": "select id, content, metadata from hybrid_search('thing7 QX-4711', %s, 20)",
    "hybrid": "select * from search_documents('what is thing7 of QX-4711?', %s, 20)",
    "filtered": "select * from search_documents('word12', %s, 20, filter => '{\"group\": 3}')",
    "keyword": "select * from search_documents('word12', %s, 20, mode => 'keyword')",
    "vector": "select * from search_documents('word12', %s, 20, mode => 'vector')",
    "match_documents": "select * from match_documents(%s, 10)",
}


@pytest.mark.parametrize("name", CALLS)
def test_no_sequential_scan_of_documents(explain: Callable[..., str], name: str) -> None:
    plan = explain(CALLS[name], VECTOR)
    assert "documents" in plan
    assert "Seq Scan on documents" not in plan


def test_the_tutorials_call_uses_both_indexes(explain: Callable[..., str]) -> None:
    plan = explain(CALLS["tutorial call"], VECTOR)
    assert "Index Scan using documents_embedding" in plan
    assert "Bitmap Index Scan on documents_fts" in plan


def test_match_documents_is_inlined_into_a_clients_query(large: str) -> None:
    """LangChain and n8n put their filter and limit outside; the index must still give the order."""
    with connect(large) as connection:
        rows = connection.execute(
            "explain select * from match_documents(%s) where metadata @> '{\"group\": 3}' limit 5", (VECTOR,)
        ).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "Function Scan" not in plan
    assert "documents_embedding" in plan or "documents_metadata" in plan


def test_a_pool_deeper_than_the_default_beam_is_filled(large: str) -> None:
    with connect(large) as connection:
        rows = connection.execute(
            "select id from search_documents('x', %s, 100, mode => 'vector')", (VECTOR,)
        ).fetchall()
    assert len(rows) == 100


def test_the_code_is_first_among_twenty_thousand(large: str) -> None:
    with connect(large) as connection:
        row = connection.execute("select content from hybrid_search('what is QX-4711?', %s, 1)", (VECTOR,)).fetchone()
    assert row is not None
    assert row[0].endswith("QX-4711")
