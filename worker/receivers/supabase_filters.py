"""PostgREST's query strings (`metadata->>tenant=eq.acme&order=id.desc&limit=5`) as SQL.

What is taken: `select`, `order`, `limit`, `offset`, and filters by `eq neq gt gte lt lte like ilike in is cs`, each
also with `not.`; columns as such, and paths into JSON. Columns and operators come from lists; everything else that a
client says reaches Postgres as a parameter. `or=(…)`, casts, embedded tables and full-text operators are refused by
name. Grammar: PostgREST's documentation, "Tables and Views".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from worker.receivers.dialect import DialectError

MOST_ROWS = 1000
"""Rows in one answer at most, as Supabase's own limit is by default; more are asked for with `offset`."""

OPAQUE = frozenset({"vector", "sparsevec", "tsvector", "bytea"})
"""Types that can only be asked whether they are null, and are shown only where `select` names them."""

_COMPARISONS = {"eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_LIKES = {"like": "like", "ilike": "ilike"}
_OPERATORS = (*_COMPARISONS, *_LIKES, "in", "is", "cs")
_NOT_FILTERS = frozenset({"select", "order", "limit", "offset", "columns", "on_conflict"})
_STEP = re.compile(r"->>?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
_MOST = 2**63 - 1

Params = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a place inside a JSON column.

    Attributes:
        type: of the value, as Postgres calls it.
        path: keys on the way in.
        as_text: the last step is `->>`.
    """

    name: str
    type: str
    path: tuple[str, ...] = ()
    as_text: bool = False

    def sql(self, params: Params) -> sql.Composable:
        """The expression; appends the keys to `params`."""
        found: sql.Composable = sql.Identifier(self.name)
        for number, key in enumerate(self.path, 1):
            index = re.fullmatch(r"-?\d{1,9}", key)
            params.append(int(key) if index else key)
            arrow = "->>" if self.as_text and number == len(self.path) else "->"
            found = sql.SQL("{} {} {}").format(found, sql.SQL(arrow), sql.SQL("%s::int" if index else "%s::text"))
        return found


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter, e.g. `id=not.in.(1,2)`: `value` is as Postgres takes it, several for `in`."""

    column: Column
    operator: str
    value: str | tuple[str, ...]
    negated: bool = False

    def sql(self, params: Params) -> sql.Composable:
        """The expression; appends the value to `params`."""
        left = self.column.sql(params)
        kind = self.column.type
        if self.operator == "is":
            found = sql.SQL("{} is null" if self.value == "null" else "{} is not null").format(left)
        else:
            params.append(list(self.value) if isinstance(self.value, tuple) else self.value)
            if self.operator == "in":
                found = sql.SQL("{} = any(%s::{}[])").format(left, sql.SQL(kind))
            else:
                sign = {**_COMPARISONS, **_LIKES, "cs": "@>"}[self.operator]
                found = sql.SQL("{} {} %s::{}").format(left, sql.SQL(sign), sql.SQL(kind))
        return sql.SQL("(not {})").format(found) if self.negated else found


@dataclass(frozen=True, slots=True)
class Query:
    """What a query string asks for.

    Attributes:
        select: columns to give, each with its name in the answer; empty for all that are shown by default.
        order: columns with what follows them, e.g. `desc nulls last`.
    """

    select: tuple[tuple[Column, str], ...]
    conditions: tuple[Condition, ...]
    order: tuple[tuple[Column, str], ...]
    limit: int
    offset: int

    def where(self, params: Params, tenant: str | None = None) -> sql.Composable:
        """` where …`, or nothing. With a tenant, only its rows, whatever the conditions are.

        That comes first: what is asked of a row may fail, and an error would tell of a row that is not the tenant's.
        """
        found: list[sql.Composable] = []
        if tenant is not None:
            params.append(tenant)
            found.append(sql.SQL("tenant = %s"))
        found.extend(condition.sql(params) for condition in self.conditions)
        return sql.SQL(" where ") + sql.SQL(" and ").join(found) if found else sql.SQL("")

    def columns(self, params: Params) -> sql.Composable:
        """The list of a `select`."""
        return sql.SQL(", ").join(
            sql.SQL("{} as {}").format(column.sql(params), sql.Identifier(name.replace("%", "%%")))
            for column, name in self.select
        )

    def tail(self, params: Params) -> sql.Composable:
        """` order by … limit … offset …`."""
        order = sql.SQL(", ").join(
            sql.SQL("{} {}").format(column.sql(params), sql.SQL(direction)) for column, direction in self.order
        )
        params.extend((self.limit, self.offset))
        return sql.SQL("{}{} limit %s offset %s").format(sql.SQL(" order by " if self.order else ""), order)


def parse_query(items: Iterable[tuple[str, str]], columns: Mapping[str, str], *, table: str = "documents") -> Query:
    """Read a query string.

    Args:
        items: its names and values, decoded.
        columns: those of the table or function, with their types.
        table: its name, for errors.

    Raises:
        DialectError: 400, as PostgREST would; or where it could and we cannot.
    """
    shown = tuple((Column(name, kind), name) for name, kind in columns.items() if kind not in OPAQUE)
    select, limit, offset = shown, MOST_ROWS, 0
    order: tuple[tuple[Column, str], ...] = ()
    conditions = []
    for name, value in items:
        if name == "select":
            select = _select(value, columns, shown, table)
        elif name == "order":
            order = tuple(_order(part, columns, table) for part in _split(value) if part)
        elif name == "limit":
            limit = min(_whole(name, value), MOST_ROWS)
        elif name == "offset":
            offset = _whole(name, value)
        elif name not in _NOT_FILTERS:
            conditions.append(_condition(name, value, columns, table))
    return Query(select, tuple(conditions), order, limit, offset)


def column_names(value: str) -> list[str]:
    """The names in `columns="content","metadata"`."""
    return [_unquoted(part.strip()) for part in _split(value) if part.strip()]


def _column(text: str, columns: Mapping[str, str], table: str) -> Column:
    name, *path = _STEP.split(text.strip())
    name = _unquoted(name)
    if name not in columns:
        raise DialectError(
            400, "42703", f"column {table}.{name} does not exist", f"there are: {', '.join(columns)}", param=name
        )
    if not path:
        return Column(name, columns[name])
    if columns[name] != "jsonb":
        raise DialectError(400, "42883", f"column {table}.{name} is no JSON to look into", param=name)
    as_text = _STEP.findall(text)[-1] == "->>"
    return Column(name, "text" if as_text else "jsonb", tuple(_unquoted(key) for key in path), as_text)


def _select(
    value: str, columns: Mapping[str, str], shown: tuple[tuple[Column, str], ...], table: str
) -> tuple[tuple[Column, str], ...]:
    found: list[tuple[Column, str]] = []
    for part in _split(value):
        part = part.strip()
        if part == "*":
            found.extend(shown)
        elif part:
            if "::" in part or "(" in part:
                raise _cannot(f"select={part}", "name columns, or paths into metadata")
            alias, _, source = part.rpartition(":")
            column = _column(source, columns, table)
            found.append((column, _unquoted(alias) or (column.path[-1] if column.path else column.name)))
    return tuple(found) or shown


def _order(part: str, columns: Mapping[str, str], table: str) -> tuple[Column, str]:
    found = re.fullmatch(r"(.+?)(?:\.(asc|desc))?(?:\.nulls(first|last))?", part.strip(), re.S)
    assert found is not None, "a part that is not empty"
    column = _column(found[1], columns, table)
    if column.type in OPAQUE:
        raise _cannot(f"order={part}", "order by another column")
    return column, " ".join(word for word in (found[2], found[3] and f"nulls {found[3]}") if word)


def _condition(name: str, value: str, columns: Mapping[str, str], table: str) -> Condition:
    if name in ("or", "and", "not.or", "not.and"):
        raise _cannot(f"{name}=", "give one filter a column; all of them must hold")
    column = _column(name, columns, table)
    negated = value.startswith("not.")
    operator, dot, operand = value.removeprefix("not.").partition(".")
    if not dot or operator not in _OPERATORS:
        raise DialectError(
            400,
            "PGRST100",
            f'"failed to parse filter ({value[:100]})" (line 1, column 1)',
            f"write {name}=OPERATOR.VALUE, with one of {', '.join(_OPERATORS)}",
            param=name,
        )
    if (
        (column.type in OPAQUE and operator != "is")
        or (operator in _LIKES and column.type != "text")
        or (operator == "cs" and column.type != "jsonb")
    ):
        raise DialectError(
            400, "42883", f"operator {operator} does not work on {name}, which is {column.type}", param=name
        )
    if operator == "is":
        if operand not in ("null", "not_null"):
            raise _cannot(f"{name}=is.{operand}", "ask is.null or is.not_null")
        return Condition(column, operator, operand, negated)
    if operator in _LIKES and (len(operand) - len(operand.rstrip("\\"))) % 2:
        # Postgres says so only once it meets a row that the rest of the pattern fits.
        raise DialectError(400, "22025", "LIKE pattern must not end with escape character", param=name)
    if operator == "in":
        return Condition(column, operator, _listed(name, operand), negated)
    return Condition(column, operator, operand.replace("*", "%") if operator in _LIKES else operand, negated)


def _listed(name: str, operand: str) -> tuple[str, ...]:
    if not (operand.startswith("(") and operand.endswith(")")):
        raise DialectError(400, "PGRST100", f'"failed to parse filter (in.{operand[:100]})"', f"write {name}=in.(a,b)")
    inside = operand[1:-1]
    return tuple(_unquoted(part) for part in _split(inside)) if inside else ()


def _split(text: str) -> list[str]:
    """Parts between commas that are not in double quotes."""
    parts, start, place = [], 0, 0
    while place < len(text):
        quoted = _QUOTED.match(text, place) if text[place] == '"' else None
        if quoted:
            place = quoted.end()
            continue
        if text[place] == ",":
            parts.append(text[start:place])
            start = place + 1
        place += 1
    return [*parts, text[start:]]


def _unquoted(text: str) -> str:
    found = _QUOTED.fullmatch(text)
    return re.sub(r"\\(.)", r"\1", found[1], flags=re.S) if found else text


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 19 or int(value) > _MOST:
        raise DialectError(
            400, "PGRST100", f"{name}={value[:40]} is no whole number", f"write e.g. {name}=10", param=name
        )
    return int(value)


def _cannot(what: str, hint: str) -> DialectError:
    return DialectError(400, "PGRST100", f"{what[:100]} is not understood here", hint)
