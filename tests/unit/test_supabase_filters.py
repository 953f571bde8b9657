"""PostgREST's query strings: what they become as SQL, and what is refused."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg import sql

from worker.receivers.dialect import DialectError
from worker.receivers.supabase_filters import MOST_ROWS, Params, Query, column_names, parse_query
from worker.receivers.supabase_rpc import DOCUMENTS


def parse(query: str) -> Query:
    return parse_query(parse_qsl(query, keep_blank_values=True), DOCUMENTS)


def text(part: sql.Composable) -> str:
    return part.as_string(None)


@pytest.mark.parametrize(
    ("query", "statement", "values"),
    [
        ("id=eq.5", '"id" = %s::bigint', ["5"]),
        ("id=neq.5", '"id" <> %s::bigint', ["5"]),
        ("id=gt.5", '"id" > %s::bigint', ["5"]),
        ("id=gte.5", '"id" >= %s::bigint', ["5"]),
        ("id=lt.5", '"id" < %s::bigint', ["5"]),
        ("page=lte.5", '"page" <= %s::int', ["5"]),
        ("id=in.(1,2,3)", '"id" = any(%s::bigint[])', [["1", "2", "3"]]),
        ("id=in.()", '"id" = any(%s::bigint[])', [[]]),
        ("id=not.in.(1,2)", '(not "id" = any(%s::bigint[]))', [["1", "2"]]),
        ('content=in.("a,b","c\\"d",e)', '"content" = any(%s::text[])', [["a,b", 'c"d', "e"]]),
        ("content=eq.a.b,c", '"content" = %s::text', ["a.b,c"]),
        ("content=like.*pump*", '"content" like %s::text', ["%pump%"]),
        ("content=not.ilike.x*", '(not "content" ilike %s::text)', ["x%"]),
        ("embedding=is.null", '"embedding" is null', []),
        ("source_id=not.is.null", '(not "source_id" is null)', []),
        ("source_id=is.not_null", '"source_id" is not null', []),
        ('metadata=cs.{"a":1}', '"metadata" @> %s::jsonb', ['{"a":1}']),
        ("metadata->>tenant=eq.acme", '"metadata" ->> %s::text = %s::text', ["tenant", "acme"]),
        ("metadata->a->>b=is.null", '"metadata" -> %s::text ->> %s::text is null', ["a", "b"]),
        ('metadata->tags->0=eq."x"', '"metadata" -> %s::text -> %s::int = %s::jsonb', ["tags", 0, '"x"']),
        ("created_at=gte.2026-01-01", '"created_at" >= %s::timestamptz', ["2026-01-01"]),
    ],
)
def test_a_filter_is_a_condition_with_its_value_as_parameter(query: str, statement: str, values: list[object]) -> None:
    params: Params = []
    assert text(parse(query).where(params)) == f" where {statement}"
    assert params == values


def test_filters_are_all_to_hold_and_keep_their_order() -> None:
    params: Params = []
    where = parse("select=id&id=gt.1&metadata->>a=eq.b&limit=3&id=lt.9").where(params)
    assert text(where) == ' where "id" > %s::bigint and "metadata" ->> %s::text = %s::text and "id" < %s::bigint'
    assert params == ["1", "a", "b", "9"]


@pytest.mark.parametrize(
    ("query", "statement", "values"),
    [
        ("", " limit %s offset %s", [MOST_ROWS, 0]),
        ("limit=5&offset=10", " limit %s offset %s", [5, 10]),
        ("limit=99999", " limit %s offset %s", [MOST_ROWS, 0]),
        ("order=id.desc", ' order by "id" desc limit %s offset %s', [MOST_ROWS, 0]),
        ("order=page.desc.nullslast,id", ' order by "page" desc nulls last, "id"  limit %s offset %s', [MOST_ROWS, 0]),
        ("order=metadata->>n.asc", ' order by "metadata" ->> %s::text asc limit %s offset %s', ["n", MOST_ROWS, 0]),
    ],
)
def test_order_and_limits(query: str, statement: str, values: list[object]) -> None:
    params: Params = []
    assert text(parse(query).tail(params)) == statement
    assert params == values


def test_select_leaves_out_vectors_unless_they_are_named() -> None:
    everything = [name for _, name in parse("select=*").select]
    assert everything == [name for _, name in parse("").select]
    assert {"id", "content", "metadata"} <= set(everything)
    assert not {"embedding", "fts", "bm25"} & set(everything)
    assert [name for _, name in parse("select=*,embedding").select] == [*everything, "embedding"]


def test_select_takes_paths_and_other_names() -> None:
    params: Params = []
    columns = parse('select=id,"content",metadata->>title,where:metadata->loc->from').columns(params)
    assert text(columns) == (
        '"id" as "id", "content" as "content", "metadata" ->> %s::text as "title",'
        ' "metadata" -> %s::text -> %s::text as "where"'
    )
    assert params == ["title", "loc", "from"]


@pytest.mark.parametrize(
    ("query", "code", "hint"),
    [
        ("nothing=eq.1", "42703", "content"),
        ("select=id,secret", "42703", "content"),
        ("order=secret", "42703", "content"),
        ("order=embedding", "PGRST100", "another column"),
        ("id=5", "PGRST100", "OPERATOR.VALUE"),
        ("id=fts.x", "PGRST100", "cs"),
        ("id=like.5*", "42883", ""),
        ("content=cs.{}", "42883", ""),
        ("embedding=eq.[1]", "42883", ""),
        ("fts=gt.x", "42883", ""),
        ("content->>a=eq.1", "42883", ""),
        ("id=in.1,2", "PGRST100", "in.(a,b)"),
        ("id=is.true", "PGRST100", "is.null"),
        ("or=(id.eq.1,id.eq.2)", "PGRST100", "one filter a column"),
        ("select=id::text", "PGRST100", "columns"),
        ("select=*,sources(*)", "PGRST100", "columns"),
        ("limit=-1", "PGRST100", "limit=10"),
        ("limit=x", "PGRST100", "limit=10"),
        ("offset=" + "9" * 5000, "PGRST100", "offset=10"),
        ("offset=9223372036854775808", "PGRST100", "offset=10"),
        ("limit=٣", "PGRST100", "limit=10"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(query: str, code: str, hint: str) -> None:
    with pytest.raises(DialectError) as caught:
        parse(query)
    assert (caught.value.failure.status, caught.value.code) == (400, code)
    assert hint in caught.value.remedy


def test_column_names_are_unquoted() -> None:
    assert column_names('"content","embedding",metadata') == ["content", "embedding", "metadata"]
    assert column_names('"a,b"') == ["a,b"]
    assert column_names("") == []


ANY = st.text(max_size=20)
NAMES = st.sampled_from(["id", "content", "metadata", "select", "select", "order", "limit", "metadata->>k", "x"])
VALUES = st.sampled_from(["eq.", "in.(", 'in.("', "not.", "is.", "a:b:c", "%s:id", "->", "id->>", "id.desc.asc"])
PATHS = st.builds("metadata->>{}".format, ANY)
# Most of what is made up anyhow is refused, so most is well-formed here, around texts that may be anything.
WELL_FORMED = (
    st.tuples(st.just("content") | PATHS, st.builds("{}.{}".format, st.sampled_from(["eq", "not.like", "ilike"]), ANY))
    | st.tuples(st.just("metadata"), st.builds("cs.{}".format, ANY))
    | st.tuples(st.just("content"), st.lists(ANY, max_size=3).map(lambda some: f"in.({','.join(some)})"))
    | st.tuples(st.just("select"), st.builds("{}:{}".format, ANY, st.just("content") | PATHS))
    | st.tuples(st.just("order"), st.builds("{}.desc".format, PATHS))
)


@example([("content", "eq.x' or 1=1--")])
@example([("metadata->>a'b", "eq.%s")])
@example([("select", '%s:content,"a\'b":id')])
@given(st.lists(st.tuples(NAMES | ANY, VALUES | ANY) | WELL_FORMED, max_size=4) | st.lists(WELL_FORMED, max_size=4))
def test_whatever_is_sent_is_understood_or_refused_and_never_part_of_the_statement(
    items: list[tuple[str, str]],
) -> None:
    try:
        query = parse_query(items, DOCUMENTS)
    except DialectError as error:
        assert error.failure.status == 400
        return
    params: Params = []
    statement = text(query.where(params)) + text(query.tail(params))
    assert "'" not in statement
    statement += text(query.columns(params))
    assert statement.replace("%%", "").count("%") == len(params)
