"""The guard of the table: rows that others insert a second time, and what it must leave alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.types import Chunk, EmbeddedChunk
from worker.ledger import Ledger, Outcome

DIMENSIONS = 8
N8N_ROWS = 500


def vector(number: int) -> str:
    return str(np.random.default_rng(number).standard_normal(DIMENSIONS).round(3).tolist())


def insert_like_n8n(connection: Connection[Any], count: int = N8N_ROWS, *, file: str = "a.pdf") -> int:
    """One statement of many rows, as the PGVector node sends it; rows that came in."""
    values: list[Any] = []
    for number in range(count):
        metadata = {"source": "blob", "file": file, "loc": {"lines": {"from": number, "to": number}}}
        values += [f"passage {number}", vector(number), Jsonb(metadata)]
    rows = ", ".join(["(%s, %s, %s)"] * count)
    return connection.execute(
        f'insert into "documents"("content","embedding","metadata") values {rows}'.encode(), values
    ).rowcount


def count(connection: Connection[Any]) -> int:
    row = connection.execute("select count(*) from documents").fetchone()
    assert row is not None
    return int(row[0])


def test_a_workflow_that_runs_again_doubles_nothing(database: Connection[Any]) -> None:
    assert insert_like_n8n(database) == N8N_ROWS
    assert insert_like_n8n(database) == 0
    assert count(database) == N8N_ROWS


def test_the_same_row_twice_in_one_statement_comes_in_once(database: Connection[Any]) -> None:
    database.execute(
        "insert into documents (content, embedding) values ('same', %(v)s), ('same', %(v)s)", {"v": vector(1)}
    )
    assert count(database) == 1


def test_other_metadata_content_or_tenant_is_another_row(database: Connection[Any]) -> None:
    assert insert_like_n8n(database, 3) == 3
    assert insert_like_n8n(database, 3, file="b.pdf") == 3
    for content, metadata, tenant in (("x", {}, "a"), ("x", {}, "b"), ("x", {"k": 1}, "a"), ("x ", {}, "a")):
        database.execute(
            "insert into documents (content, metadata, tenant, embedding) values (%s, %s, %s, %s)",
            (content, Jsonb(metadata), tenant, vector(1)),
        )
    assert count(database) == 10


def test_the_order_of_metadata_keys_makes_no_difference(database: Connection[Any]) -> None:
    for metadata in ('{"a": 1, "b": 2.0}', '{"b": 2.0, "a": 1}'):
        database.execute(
            "insert into documents (content, metadata, embedding) values ('x', %s, %s)", (metadata, vector(1))
        )
    assert count(database) == 1


def ingest(connection: Connection[Any], uri: str, contents: list[str]) -> None:
    ledger = Ledger(connection)
    ledger.record(uri, fingerprint="1", metadata={})
    claim = ledger.claim()
    assert claim is not None
    chunks = [
        EmbeddedChunk(
            Chunk(index, content, None, (), None, 0, len(content), "english", 5),
            np.ones(DIMENSIONS, dtype=np.float32),
            "m",
        )
        for index, content in enumerate(contents)
    ]
    assert ledger.commit(claim, Outcome(b"h", "r", "text/plain", None, None, 5, {}), chunks)


def test_our_own_ingest_keeps_what_repeats(database: Connection[Any]) -> None:
    database.execute("insert into documents (content, embedding) values ('same', %s)", (vector(1),))
    ingest(database, "file:///a", ["same", "same"])
    ingest(database, "file:///b", ["same"])
    rows = database.execute("select source_id, chunk_index from documents order by id").fetchall()
    assert rows == [(None, None), (1, 0), (1, 1), (2, 0)]


def test_a_row_of_ours_does_not_keep_out_somebody_elses(database: Connection[Any]) -> None:
    ingest(database, "file:///a", ["same"])
    database.execute("insert into documents (content, embedding) values ('same', %s)", (vector(1),))
    assert count(database) == 2


def test_rows_of_ours_do_not_meet_the_guard(database: Connection[Any]) -> None:
    ingest(database, "file:///a", ["one"])
    plan = database.execute(
        "explain (analyze, format json)"
        " insert into documents (source_id, chunk_index, content, content_hash, embedding)"
        " select 1, n, 'text ' || n, sha256(n::text::bytea), %s from generate_series(1, 50) as n",
        (PgVector(np.ones(DIMENSIONS, dtype=np.float32)),),
    ).fetchone()
    assert plan is not None
    assert count(database) == 51
    assert "documents_skip_known" not in {found["Trigger Name"] for found in plan[0][0]["Triggers"]}


def test_two_runs_at_once_double_nothing(database: Connection[Any], another: Callable[[], Connection[Any]]) -> None:
    connections = [another(), another()]
    start = threading.Barrier(2)

    def run(connection: Connection[Any]) -> None:
        start.wait()
        insert_like_n8n(connection, 200)

    threads = [threading.Thread(target=run, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count(database) == 200


def test_content_that_was_changed_is_known_by_what_it_is_now(database: Connection[Any]) -> None:
    insert = "insert into documents (content, embedding) values (%s, %s)"
    database.execute(insert, ("old", vector(1)))
    database.execute("update documents set content = 'new'")
    database.execute(insert, ("new", vector(1)))
    assert count(database) == 1
    database.execute(insert, ("old", vector(1)))
    assert count(database) == 2


@pytest.mark.parametrize("content", ["same", "changed"])
def test_an_upsert_by_id_reaches_its_row(database: Connection[Any], content: str) -> None:
    database.execute("insert into documents (content, embedding) values ('same', %s)", (vector(1),))
    database.execute(
        "insert into documents (id, content, embedding) values (1, %s, %s)"
        " on conflict (id) do update set content = excluded.content, embedding = excluded.embedding",
        (content, "[9,0,0,0,0,0,0,0]"),
    )
    row = database.execute("select content, embedding::text from documents").fetchall()
    assert row == [(content, "[9,0,0,0,0,0,0,0]")]
