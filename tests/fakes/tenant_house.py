"""Three tenants with nearly the same texts in a database that a plain role owns, and roles that may see some of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.types.json import Jsonb

from pipelines.database import connect
from sql.migrate import migrate

OWNER = "th_owner"
"""Owns the tables and is no superuser."""
WORKER = "th_worker"
READERS = {"th_acme": ["acme"], "th_beta": ["beta"], "th_gamma": ["gamma"], "th_both": ["acme", "beta"]}
STRANGER = "th_stranger"
"""Was granted nothing."""
AUTHENTICATOR = "th_authenticator"
"""Logs in and is a member of two readers without inheriting from them, as PostgREST's."""
MEMBER = "th_member"
"""A member of `th_acme` that inherits."""
ROLES = (OWNER, WORKER, *READERS, STRANGER, AUTHENTICATOR, MEMBER)

TENANTS = ("acme", "beta", "gamma")
WORDS = tuple(
    word
    for line in (
        "pump valve pressure inlet gauge motor seal customer invoice contract delivery error blocked clean replace dry",
        "running temperature alarm reset",
    )
    for word in line.split()
)
ROWS = 30


def canary(tenant: str) -> str:
    """A word that only this tenant's rows hold, in content and metadata."""
    return f"zq{tenant}vat"


class TenantHouse:
    """One database of an embedded server.

    Args:
        url: a superuser's, of any database of the server.
        name: of the database.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.name = name

    def dsn(self, role: str = OWNER) -> str:
        """Where a role connects."""
        return self._url.replace("/gristmill?", f"/{self.name}?").replace("//postgres@", f"//{role}@")

    @contextmanager
    def open(self, role: str = OWNER) -> Iterator[Connection[Any]]:
        """A connection as a role, ours first on its search path."""
        with connect(self.dsn(role)) as connection:
            yield connection

    def create(self, template: str = "template0") -> None:
        """Make the database."""
        with psycopg.connect(self._url, autocommit=True) as admin:
            for role in ROLES:
                if admin.execute("select from pg_roles where rolname = %s", (role,)).fetchone() is None:
                    admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
            admin.execute(sql.SQL("alter role {} noinherit").format(sql.Identifier(AUTHENTICATOR)))
            admin.execute(f"grant th_acme, th_both to {AUTHENTICATOR}".encode())
            admin.execute(f"grant th_acme to {MEMBER}".encode())
            admin.execute(
                sql.SQL("create database {} template {} owner {}").format(
                    sql.Identifier(self.name), sql.Identifier(template), sql.Identifier(OWNER)
                )
            )
        if template == "template0":  # as a plain owner has to ask for
            with psycopg.connect(self.dsn("postgres"), autocommit=True) as admin:
                admin.execute("create extension vector")
                admin.execute("create extension unaccent")

    def drop(self) -> None:
        """Drop the database; the roles stay."""
        with psycopg.connect(self._url, autocommit=True) as admin:
            admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(self.name)))

    def furnish(self, tenants: Sequence[str] = TENANTS) -> None:
        """The schema, rows of tenants, statistics, and all grants."""
        migrate(self.dsn(), dimensions=8)
        with self.open() as owner:
            for tenant in tenants:
                fill(owner, tenant)
            for table in ("sources", "documents"):
                owner.execute(f"alter table {table} alter id restart with 10000".encode())
            owner.execute("select refresh_statistics()")
            owner.execute("select grant_worker(%s)", (WORKER,))
            for role, granted in READERS.items():
                for tenant in granted:
                    owner.execute("select grant_reader(%s, %s)", (role, tenant))


def fill(connection: Connection[Any], tenant: str, *, seed: int = 5, first: int = 0, rows: int = ROWS) -> None:
    """Rows of a tenant, most in documents of five chunks; their ids tell the tenant: from 1000 on they are beta's."""
    dice = random.Random(seed)  # the same for all tenants
    base = TENANTS.index(tenant) * 1000 + first
    for n in range(rows):
        source = base + n // 5 if n < rows - 5 else None
        if source is not None and n % 5 == 0:
            connection.execute(
                "insert into sources (id, tenant, uri, kind, metadata, state) overriding system value"
                " values (%s, %s, %s, 'file', %s, 'done')",
                (source, tenant, f"file:///drop/{first + n // 5}.txt", Jsonb({"mark": canary(tenant)})),
            )
        text = " ".join(dice.choices(WORDS, k=12))
        if n % 3 == 0:
            text += f" Error E-{4000 + n % 7} of {tenant.upper()}-{n:03}"
        if n % 5 < 2:
            text += " Model K-99."  # more than ten: not rare in so few rows, and rare in a thousand
        vector = [dice.gauss(0, 1) for _ in range(8)]
        connection.execute(
            "insert into documents (id, content, embedding, tenant, source_id, chunk_index, content_hash, language,"
            " created_at, metadata) values (%s, %s, %s, %s, %s, %s, %s, %s,"
            " timestamptz '2026-11-01' + make_interval(days => %s), %s)",
            (
                base + n,
                f"{text} {canary(tenant)}.",
                str(vector),
                tenant,
                source,
                n % 5 if source is not None else None,
                b"%d" % n if source is not None else None,
                "french" if n % 4 == 0 else "english",
                n % 28,
                Jsonb({"group": n % 4, "mark": canary(tenant)}),
            ),
        )
