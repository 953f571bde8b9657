"""The SQL functions as strangers call them: psql, n8n, Supabase, LangChain."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import Connection
from psycopg.types.json import Jsonb


def vector(*values: float) -> str:
    return str([*values, *([0.0] * (8 - len(values)))])


@pytest.fixture
def pumps(database: Connection[Any]) -> Connection[Any]:
    rows = [
        ("english", "Error E-4012: the pump is blocked. Clean the inlet.", vector(1)),
        ("english", "Error E-4013: pressure is low, 4012 hPa at the gauge.", vector(0.95, 0.05)),
        ("french", "Erreur E-4012 : la pompe est bloquée, nettoyez la crépine.", vector(0.2, 1)),
        ("english", "How to end your subscription at any time.", vector(0, 0, 1)),
        ("french", "L'article L. 121-3 du code fixe le délai.", vector(0, 0, 0, 1)),
    ]
    for language, content, embedding in rows:
        database.execute(
            "insert into documents (language, content, embedding, metadata) values (%s, %s, %s, %s)",
            (language, content, embedding, Jsonb({"lang": language})),
        )
    database.execute("select refresh_statistics()")
    return database


def found(connection: Connection[Any], query: str, embedding: str = vector(0, 0, 0, 0, 1), **more: Any) -> list[int]:
    extra = "".join(f", {name} => %({name})s" for name in more)
    rows = connection.execute(
        f"select id from search_documents(%(q)s, %(e)s{extra})".encode(), {"q": query, "e": embedding, **more}
    ).fetchall()
    return [row[0] for row in rows]


def test_strangers_rows_work_and_are_searchable(database: Connection[Any]) -> None:
    database.execute(
        'insert into "documents"("content","embedding","metadata") values (%s,%s,%s)',
        ("Fault TLS_HANDSHAKE_FAILED seen", vector(1), Jsonb({"source": "blob"})),
    )
    rows = database.execute("select id, content, metadata from hybrid_search('TLS_HANDSHAKE_FAILED', %s, 20)", (
        vector(0, 1),
    )).fetchall()  # fmt: skip
    assert [(row[1], row[2]) for row in rows] == [("Fault TLS_HANDSHAKE_FAILED seen", {"source": "blob"})]


def test_the_tutorials_failing_question_is_answered(pumps: Connection[Any]) -> None:
    # The vector points at the wrong code, as it does in life.
    assert set(found(pumps, "what does error E-4012 mean?", vector(0.95, 0.05))[:2]) == {1, 3}
    assert found(pumps, "que signifie l'erreur E-4012 ?", vector(0.95, 0.05))[0] in (1, 3)


@pytest.mark.parametrize("spelling", ["E-4012", "e-4012", "E4012", "E–4012", "E‑4012", "e 4012"])
def test_a_code_in_any_spelling(pumps: Connection[Any], spelling: str) -> None:
    assert set(found(pumps, spelling, mode="keyword")[:2]) == {1, 3}


def test_accents_may_be_left_out(pumps: Connection[Any]) -> None:
    for query in ("pompe bloquée", "pompe bloquee", "POMPES BLOQUÉES"):
        assert found(pumps, query, mode="keyword")[0] == 3


def test_ranks_say_which_leg_found_a_row(pumps: Connection[Any]) -> None:
    rows = pumps.execute(
        "select id, vector_rank, keyword_rank, identifier_rank from search_documents('E-4012', %s)",
        (vector(0, 0, 1),),
    ).fetchall()
    by_id = {row[0]: row[1:] for row in rows}
    assert by_id[4][0] == 1
    assert by_id[4][1:] == (None, None)
    assert sorted(by_id[i][2] for i in (1, 3)) == [1, 2]


@pytest.mark.parametrize(
    "query",
    [
        *("???", "the of and", "", "' | & ! <->", "\\", "a" * 5000, "%_'\"", "-", "\u200b"),
        # Of these, what means something to tsquery becomes part of a word.
        *("example.org/a'b", "example.org/!a", "example.org/a:b", "valve -example.org/!a"),
    ],
)
def test_any_question_is_safe(pumps: Connection[Any], query: str) -> None:
    assert found(pumps, query, vector(0, 0, 1))[0] == 4


def test_filter_and_count(pumps: Connection[Any]) -> None:
    assert set(found(pumps, "E-4012", filter=Jsonb({"lang": "french"}))) == {3, 5}
    assert len(found(pumps, "pump", match_count=2)) == 2


def test_an_unknown_mode_is_named(pumps: Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="'fuzzy'"):
        found(pumps, "x", mode="fuzzy")


def test_match_documents_by_the_names_that_clients_send(pumps: Connection[Any]) -> None:
    rows = pumps.execute(
        "select id, content, metadata, similarity from match_documents(query_embedding => %s, match_count => 2,"
        " filter => %s)",
        (vector(1), Jsonb({"lang": "english"})),
    ).fetchall()
    assert [row[0] for row in rows] == [1, 2]
    assert rows[0][3] == pytest.approx(1.0)
    everything = pumps.execute("select id from match_documents(query_embedding => %s)", (vector(1),)).fetchall()
    assert len(everything) == 5


def test_a_language_that_does_not_exist_is_refused(database: Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject, match="klingon"):
        database.execute("insert into documents (content, language) values ('x', 'klingon')")


def test_numpy_vectors_go_in_and_come_out(database: Connection[Any]) -> None:
    from pipelines.store import as_vector

    value = np.linspace(0, 1, 8, dtype=np.float32)
    database.execute("insert into documents (content, embedding) values ('x', %s)", (value,))
    row = database.execute("select embedding from documents").fetchone()
    assert row is not None
    assert np.array_equal(as_vector(row[0]), value)
