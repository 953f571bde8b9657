"""Apply a file of functions over what it made before, while they are called.

Functions that keep their signature are replaced in place: they keep their identity, their grants, and the views that
stand on them, and no caller ever finds them gone. The rest is made anew, and what it was before gets another name: a
query under way that has found it already would fail if it were gone ("cache lookup failed for function"). Once all
such queries have ended it is dropped, never by `cascade`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Connection

CREATE = re.compile(r"^create function (?=(\w+)\s*\()", re.MULTILINE)


STALE = "gristmill_stale_"
"""What the names of functions begin with that nobody is to call any more."""
OTHERS_SECONDS = 10.0
"""For how long queries under way are waited for. Whoever is idle in a transaction looks functions up again."""


class StillUsedError(Exception):
    """Something that is not ours stands on a function that must be dropped; the message names both."""


def function_names(text: str) -> frozenset[str]:
    """Names of the functions that a file makes."""
    return frozenset(CREATE.findall(text))


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Note on every error of Postgres which file it comes from."""
    try:
        yield
    except psycopg.Error as error:
        error.add_note(file)
        raise


@dataclass(frozen=True, slots=True)
class FunctionFile:
    """A file of functions, and what is known of those it made before.

    Attributes:
        name: of the file.
        text: each of its functions begins with `create function NAME(` at the beginning of a line.
        known: names of functions that are ours. One of another name that is there already is somebody else's.
        recorded: what `apply_functions` returned for the file; null where that is not known: then every function that
            has a known name of the file's counts as made by it.
    """

    name: str
    text: str
    known: frozenset[str]
    recorded: list[str] | None

    @property
    def names(self) -> frozenset[str]:
        """Names of its functions."""
        return function_names(self.text)


def apply_functions(
    connection: Connection, changed: list[FunctionFile], unchanged: list[FunctionFile]
) -> dict[str, list[str]]:
    """Run files of functions in the current transaction.

    Args:
        connection: in a transaction, with our schema first on the search path.
        changed: in the order in which they are to run.
        unchanged: run as well, in the order of the names, if functions have to be dropped: theirs may stand on them.

    Returns:
        By file, the signatures of what it has made, to be recorded.

    Raises:
        StillUsedError: see there.
        psycopg.Error: whatever Postgres says to a file.
    """
    try:
        with connection.transaction():
            return _replace(connection, changed)
    except (psycopg.errors.InvalidFunctionDefinition, psycopg.errors.AmbiguousFunction, StillUsedError):
        # Postgres replaces no function whose result or argument names change.
        return _make_anew(connection, sorted([*changed, *unchanged], key=lambda one: one.name))


def _replace(connection: Connection, changed: list[FunctionFile]) -> dict[str, list[str]]:
    stale: set[int] = set()
    made: dict[str, list[str]] = {}
    for one in changed:
        mine, before = _mine(connection, one), _functions(connection, one.names)
        text = _replacing(one)
        with naming(one.name):
            connection.execute(text.encode())
        made[one.name] = _made(connection, one.names, before)
        stale |= mine
    _put_away(connection, stale - {oid for signatures in made.values() for oid in _present(connection, signatures)})
    return made


def _replacing(one: FunctionFile) -> str:
    def create(match: re.Match[str]) -> str:
        return "create or replace function " if match[1] in one.known else match[0]

    return CREATE.sub(create, one.text)


def _make_anew(connection: Connection, all_files: list[FunctionFile]) -> dict[str, list[str]]:
    mine = {oid for one in all_files for oid in _mine(connection, one)}
    grants = _grants(connection, mine)
    _put_away(connection, mine)
    made: dict[str, list[str]] = {}
    for one in all_files:
        before = _functions(connection, one.names)
        with naming(one.name):
            connection.execute(one.text.encode())
        made[one.name] = _made(connection, one.names, before)
    _grant_again(connection, grants)
    return made


def _mine(connection: Connection, one: FunctionFile) -> set[int]:
    if one.recorded is not None:
        return _present(connection, one.recorded)
    return set(_functions(connection, one.names & one.known))


def align_paths(connection: Connection) -> None:
    """Have the functions that version 0.1.0 made with a search path of their own name temporary objects last, too.

    Where a path does not name them they come first, before the tables that the function means.
    """
    rows = connection.execute(
        "select p.oid::regprocedure::text from pg_proc p, unnest(p.proconfig) as setting"
        " where p.pronamespace = current_schema()::regnamespace and setting like 'search_path=%'"
        " and setting || ', pg_temp' = 'search_path=' || current_setting('search_path')"
    )
    for (signature,) in rows.fetchall():
        connection.execute(f"alter function {signature} set search_path from current".encode())


def _functions(connection: Connection, names: Collection[str]) -> dict[int, str]:
    """The version of the row of each function of these names: it changes when the function is replaced."""
    rows = connection.execute(
        "select p.oid::bigint, p.xmin::text || p.ctid::text from pg_proc p"
        " where p.pronamespace = current_schema()::regnamespace and p.proname = any (%s)"
        " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')",
        (list(names),),
    )
    return dict(rows.fetchall())


def _made(connection: Connection, names: Collection[str], before: dict[int, str]) -> list[str]:
    now = _functions(connection, names)
    made = [oid for oid, row in now.items() if before.get(oid) != row]
    rows = connection.execute("select oid::regprocedure::text from pg_proc where oid = any (%s) order by 1", (made,))
    return [row[0] for row in rows.fetchall()]


def _present(connection: Connection, signatures: list[str]) -> set[int]:
    rows = connection.execute(
        "select to_regprocedure(s)::oid::bigint from unnest(%s::text[]) as s where to_regprocedure(s) is not null",
        (signatures,),
    )
    return {row[0] for row in rows.fetchall()}


def drop_stale(connection: Connection) -> None:
    """Drop what was put away, once nobody calls it any more."""
    rows = connection.execute(
        "select oid::bigint from pg_proc where pronamespace = current_schema()::regnamespace"
        " and starts_with(proname, %s) and pg_has_role(proowner, 'usage')",
        (STALE,),
    ).fetchall()
    if rows:
        _outlast_others(connection)
        _drop(connection, {row[0] for row in rows})


def _outlast_others(connection: Connection) -> None:
    """Wait until all have ended who were at it when this was called."""
    query = "select virtualxid from pg_locks where locktype = 'virtualxid' and pid <> pg_backend_pid()"
    others = set(connection.execute(query).fetchall())
    until = time.monotonic() + OTHERS_SECONDS
    while others and time.monotonic() < until:
        time.sleep(0.01)
        others &= set(connection.execute(query).fetchall())


def _put_away(connection: Connection, oids: set[int]) -> None:
    with connection.transaction(force_rollback=True):
        _drop(connection, oids)
    for oid in sorted(oids):
        row = connection.execute("select %s::oid::regprocedure::text", (oid,)).fetchone()
        assert row is not None
        connection.execute(f"alter function {row[0]} rename to {STALE}{oid}".encode())


def _drop(connection: Connection, oids: set[int]) -> None:
    """All in one statement: they may stand on one another."""
    if not oids:
        return
    row = connection.execute(
        "select string_agg(oid::regprocedure::text, ', ') from pg_proc where oid = any (%s)", (list(oids),)
    ).fetchone()
    assert row is not None
    try:
        with connection.transaction():
            connection.execute(f"drop function {row[0]}".encode())
    except psycopg.errors.DependentObjectsStillExist as error:
        raise StillUsedError((error.diag.message_detail or str(error)).replace("\n", "; ")) from error


def _grants(connection: Connection, oids: set[int]) -> dict[str, list[str]]:
    """Who may call what, by signature: roles, quoted, and whether they may grant it on. Nothing where all may."""
    rows = connection.execute(
        "select p.oid::regprocedure::text, array_remove(array_agg(case when a.grantee = p.proowner then null"
        " when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end"
        " || case when a.is_grantable then ' with grant option' else '' end), null)"
        " from pg_proc p, aclexplode(p.proacl) a where p.oid = any (%s) group by p.oid",
        (list(oids),),
    )
    return dict(rows.fetchall())


def _grant_again(connection: Connection, grants: dict[str, list[str]]) -> None:
    """To those functions that have the signature they had; who may call another one is for its owner to say."""
    for signature, roles in grants.items():
        if not _present(connection, [signature]):
            continue
        connection.execute(f"revoke all on function {signature} from public".encode())
        for role in roles:
            connection.execute(f"grant execute on function {signature} to {role}".encode())
