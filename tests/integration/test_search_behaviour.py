"""What search promises: modes, quotes and minus, filters, languages, neighbours, snippets, order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from pgvector import Vector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.errors import ConfigurationError, PermanentError
from pipelines.search import Options, check_model, search
from pipelines.types import Vector as Array
from worker.housekeeping import refresh_statistics

FAR = np.eye(8, dtype=np.float32)[7]


class Pointing:
    """An embedder whose vector for every text is the one it was given."""

    model = "pointing"
    dimensions = 8

    def __init__(self, vector: Array) -> None:
        self.vector = vector

    def embed_documents(self, texts: Any) -> list[Array]:
        return [self.vector for _ in texts]

    def embed_query(self, text: str) -> Array:
        return self.vector


def add(connection: Connection[Any], content: str, at: int = 0, language: str = "english", **columns: Any) -> int:
    vector = Vector(np.eye(8, dtype=np.float32)[at % 8])
    names = ["content", "embedding", "language", *columns]
    row = connection.execute(
        f"insert into documents ({', '.join(names)}) values ({', '.join(['%s'] * len(names))}) returning id".encode(),
        [content, vector, language, *columns.values()],
    ).fetchone()
    assert row is not None
    return int(row[0])


def ids(connection: Connection[Any], query: str, vector: Array = FAR, **options: Any) -> list[int]:
    return [hit.id for hit in search(connection, query, Pointing(vector), Options(**options))]


def add_many(connection: Connection[Any], query: str) -> None:
    """Insert by a query. Nobody inserts any of it twice, and to look whether somebody does takes most of the time."""
    connection.execute("alter table documents disable trigger documents_skip_known")
    connection.execute(query.encode())
    connection.execute("alter table documents enable trigger documents_skip_known")


@pytest.fixture
def library(database: Connection[Any]) -> dict[str, int]:
    made = {
        "dry": add(database, "Dry running destroys the shaft seal of a pump.", 0),
        "running": add(database, "A pump that is running dry makes a dry sound.", 1),
        "lease": add(database, "The lease of the office ends in May.", 2),
        "bail": add(database, "Le bail du bureau prend fin en mai, sauf résiliation anticipée.", 3, "french"),
        "maj": add(database, "RESILIATION DU CONTRAT: ECRIRE AU SIEGE.", 4, "french"),
        "code": add(database, "Error E-4012: dry running.", 5),
        "near": add(database, "Error E-4013: wet running.", 6),
    }
    database.execute("select refresh_statistics()")
    return made


def test_quotes_among_keywords_are_a_rule(database: Connection[Any], library: dict[str, int]) -> None:
    assert set(ids(database, '"dry running" pump')) == {library["dry"], library["code"]}
    assert set(ids(database, '"dry running" -seal')) == {library["code"]}
    assert library["dry"] not in ids(database, "pump -seal")


def test_quotes_in_a_sentence_are_punctuation(database: Connection[Any], library: dict[str, int]) -> None:
    found = ids(database, 'what is the so-called "office lease" of a company?')
    assert found[0] == library["lease"]
    assert len(found) == len(library)


def test_a_minus_before_a_number_or_letter_is_part_of_a_code(
    database: Connection[Any], library: dict[str, int]
) -> None:
    for query in ("error -4012", "E -4012", "SKU 8842 -B"):
        assert database.execute("select question_filter(%s, array['english', 'french'])", (query,)).fetchone() == (
            None,
        )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("E-4012", "keyword"),
        ("sku 8842-B", "keyword"),
        ("E-4012, E-4013", "keyword"),
        ('"dry running"', "keyword"),
        ("what does error E-4012 mean?", "hybrid"),
        ("error E-4012", "hybrid"),
        ("dry running", "hybrid"),
        ("", "hybrid"),
    ],
)
def test_auto_reads_the_question(database: Connection[Any], query: str, expected: str) -> None:
    assert database.execute("select question_mode(%s)", (query,)).fetchone() == (expected,)


def test_auto_on_a_bare_code_leaves_out_what_is_only_near(database: Connection[Any], library: dict[str, int]) -> None:
    found = search(database, "E-4012", Pointing(np.eye(8, dtype=np.float32)[6]), Options(mode="auto"))
    assert found[0].id == library["code"]
    assert library["lease"] not in [hit.id for hit in found]


def test_the_right_code_beats_the_nearest_vector(database: Connection[Any], library: dict[str, int]) -> None:
    for rrf_k in (None, 20, 60):
        near_twin = np.eye(8, dtype=np.float32)[6]
        found = search(database, "what does error E-4012 mean?", Pointing(near_twin), Options(rrf_k=rrf_k))
        assert found[0].id == library["code"], rrf_k
        assert found[0].ranks["identifier"] == 1
        twin = next(hit for hit in found if hit.id == library["near"])
        assert twin.ranks == {"vector": 1, "keyword": twin.ranks["keyword"], "identifier": None}


def test_a_question_finds_rows_of_its_language_in_a_mixed_table(
    database: Connection[Any], library: dict[str, int]
) -> None:
    assert ids(database, "quand prend fin le bail ?")[0] == library["bail"]
    assert ids(database, "when does the lease end?")[0] == library["lease"]
    assert database.execute("select question_languages('quand prend fin le bail ?')").fetchone() == (["french"],)
    assert database.execute("select question_languages('bail bureau')").fetchone() == (["english", "french"],)


def test_accents_on_either_side_may_be_missing(database: Connection[Any], library: dict[str, int]) -> None:
    assert ids(database, "résiliation anticipée", mode="keyword") == [library["bail"], library["maj"]]
    assert set(ids(database, "resiliation anticipee", mode="keyword")) == {library["bail"], library["maj"]}


def test_only_stop_words_leaves_it_to_the_vectors(database: Connection[Any], library: dict[str, int]) -> None:
    for query in ("is it the of?", "???", "…", "le la les"):
        assert ids(database, query, np.eye(8, dtype=np.float32)[2])[0] == library["lease"]
        assert search(database, query, None, Options(mode="keyword")) == []


def test_filters(database: Connection[Any]) -> None:
    row = database.execute("insert into sources (uri) values ('file:///a') returning id").fetchone()
    assert row is not None
    now = datetime.now(UTC)
    own = {"source_id": row[0], "chunk_index": 0, "content_hash": b"x", "metadata": Jsonb({"team": "blue"})}
    mine = add(database, "pump one", 0, **own)
    french = add(database, "pump two", 1, "french", created_at=now - timedelta(days=10))
    old = add(database, "pump three", 2, metadata=Jsonb({"team": "red", "tags": ["a"]}), created_at=now - timedelta(20))
    assert ids(database, "pump", filter={"team": "blue"}) == [mine]
    assert ids(database, "pump", filter={"tags": ["a"]}) == [old]
    assert ids(database, "pump", sources=[row[0]]) == [mine]
    assert ids(database, "pump", sources=[]) == []
    assert ids(database, "pump", language="french") == [french]
    assert set(ids(database, "pump", until=now - timedelta(days=5))) == {french, old}
    assert ids(database, "pump", since=now - timedelta(15), until=now - timedelta(days=5)) == [french]
    assert ids(database, "pump", filter={"team": "green"}) == []


def test_a_filter_that_leaves_a_few_far_rows_returns_them_all(database: Connection[Any]) -> None:
    add_many(
        database,
        "insert into documents (content, embedding, metadata)"
        " select 'thing ' || n, (select array_agg(case when k = 1 then 1.0 else random() * 0.2 end)"
        ' from generate_series(1, 8) k)::vector, \'{"part": "common"}\' from generate_series(1, 4000) n',
    )
    database.execute(
        "insert into documents (content, embedding, metadata)"
        " select 'far ' || n, (select array_agg(case when k = 8 then 1.0 else random() * 0.2 end)"
        ' from generate_series(1, 8) k)::vector, \'{"part": "rare"}\' from generate_series(1, 20) n'
    )
    for analysed in (False, True):
        if analysed:
            database.execute("analyze documents")
        near = np.eye(8, dtype=np.float32)[0]
        assert len(ids(database, "zzz", near, filter={"part": "rare"}, k=50)) == 20
        assert len(ids(database, "zzz", near, filter={"part": "rare"}, k=50, mode="vector")) == 20


def test_order_is_stable_and_ties_go_by_id(database: Connection[Any]) -> None:
    made = [add(database, "exactly the same", 0, metadata=Jsonb({"copy": copy})) for copy in range(30)]
    for mode in ("hybrid", "keyword", "vector"):
        assert ids(database, "exactly the same", np.eye(8, dtype=np.float32)[0], mode=mode, k=30) == made


@pytest.fixture
def chapters(database: Connection[Any]) -> list[int]:
    made = []
    for source in range(2):
        row = database.execute("insert into sources (uri) values (%s) returning id", (f"file:///{source}",)).fetchone()
        assert row is not None
        made += [
            add(
                database,
                f"document {source} chapter {index} {'needle' if index in (2, 3, 8) and source == 0 else 'hay'}",
                index,
                source_id=row[0],
                chunk_index=index,
                content_hash=bytes([source, index]),
            )
            for index in range(10)
        ]
    add(database, "a needle of nobody", 0)
    return made


def test_neighbours_come_in_order_and_touching_hits_become_one(database: Connection[Any], chapters: list[int]) -> None:
    hits = search(database, "needle", None, Options(mode="keyword", neighbours=1))
    passages = [hit.content for hit in hits]
    assert sorted(passages, key=len) == [
        "a needle of nobody",
        "\n\n".join(f"document 0 chapter {n}" for n in ("7 hay", "8 needle", "9 hay")),
        "\n\n".join(f"document 0 chapter {n}" for n in ("1 hay", "2 needle", "3 needle", "4 hay")),
    ]
    assert len(search(database, "needle", None, Options(mode="keyword"))) == 4
    (everything, nobody) = sorted(
        search(database, "needle", None, Options(mode="keyword", neighbours=3)), key=lambda hit: -len(hit.content)
    )
    assert everything.content.count("chapter") == 10
    assert nobody.content == "a needle of nobody"


def test_snippets_mark_the_words(database: Connection[Any], library: dict[str, int]) -> None:
    hit = search(database, "when does the lease end?", Pointing(FAR), Options(highlight=True))[0]
    assert hit.snippet == "**lease** of the office **ends**"
    assert search(database, "lease", Pointing(FAR), Options())[0].snippet is None


def test_common_words_are_left_out_only_while_rarer_ones_remain(database: Connection[Any]) -> None:
    add_many(
        database,
        "insert into documents (content, embedding) select 'server note ' || n, '[1,0,0,0,0,0,0,0]'"
        " from generate_series(1, 3000) n",
    )
    rare = add(database, "server with a gearbox", 1)
    database.execute("select refresh_statistics()")
    assert ids(database, "server gearbox", mode="keyword") == [rare]
    assert len(ids(database, "server", mode="keyword", k=20)) == 20


def test_statistics_follow_in_the_background(database: Connection[Any]) -> None:
    add(database, "alpha beta")
    add(database, "alpha gamma")
    database.execute("select pg_stat_force_next_flush()")
    assert refresh_statistics(database)
    assert dict(database.execute("select lexeme, documents from lexeme_statistics").fetchall()) == {"alpha": 2}
    assert not refresh_statistics(database), "nothing has changed since"
    for copy in range(3):
        add(database, "beta gamma", metadata=Jsonb({"copy": copy}))
    database.execute("select pg_stat_force_next_flush()")
    assert refresh_statistics(database)
    found = dict(database.execute("select lexeme, documents from lexeme_statistics").fetchall())
    assert found == {"alpha": 2, "beta": 4, "gamma": 4}


def test_bm25_is_what_the_formula_gives(database: Connection[Any]) -> None:
    first = add(database, "pump pump valve", 0)
    add(database, "pump", 1)
    add(database, "tank", 2)
    database.execute("select refresh_statistics()")
    hits = {hit.id: hit.score for hit in search(database, "pump", None, Options(mode="keyword"))}
    idf = np.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    tf = 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 100))
    assert hits[first] == pytest.approx(idf * tf, rel=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [{"k": 0}, {"k": 1001}, {"mode": "fuzzy"}, {"alpha": 1.5}, {"rrf_k": 0}, {"neighbours": -1}],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PermanentError):
        Options(**wrong)


def test_wrong_questions_and_languages_are_refused(database: Connection[Any]) -> None:
    with pytest.raises(PermanentError, match="empty"):
        search(database, " \0 ", None, Options(mode="keyword"))
    with pytest.raises(PermanentError, match="klingon"):
        search(database, "x", None, Options(mode="keyword", query_language="klingon"))
    with pytest.raises(ConfigurationError, match="needs an embedder"):
        search(database, "x", None, Options())


def test_models_are_never_mixed(database: Connection[Any]) -> None:
    database.execute("insert into index_models (model, dimensions) values ('another', 8)")
    with pytest.raises(ConfigurationError, match="built with another"):
        check_model(database, Pointing(FAR))
