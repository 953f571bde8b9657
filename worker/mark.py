"""The mark: whether the database is the one that this home last saw, or an older one.

The table `homes` and `<home>/mark.json` hold a number that housekeeping raises every few seconds, first in the
database. Where the database's is lower, or missing, it was restored from a backup, whatever happened in it since. Until
`gristmill reconcile` has run, nothing is tidied away that only the newer one knew of.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection

from pipelines.errors import ConfigurationError, GristmillError
from worker.journal import Journal, salt_mark
from worker.settings import Settings

log = logging.getLogger(__name__)

SPARE = timedelta(days=1)
"""For so long after a restored database was reconciled, the spool is not swept: syncs and workers come to name what
they still need."""

BEHIND = "the database is older than what this home has seen: it was restored from a backup, or is another one"
REMEDY = "run: gristmill reconcile"

# Numbers that were handed out since the backup must not be handed out again.
SEQUENCES = """
select c.relname::text, s.oid::regclass::text, q.last_value
from pg_class c
  join pg_attribute a on a.attrelid = c.oid and a.attidentity <> ''
  join pg_depend d on d.refobjid = c.oid and d.refobjsubid = a.attnum and d.deptype = 'i'
    and d.classid = 'pg_class'::regclass
  join pg_class s on s.oid = d.objid and s.relkind = 'S'
  join pg_sequences q on q.schemaname = s.relnamespace::regnamespace::name and q.sequencename = s.relname
where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'
"""

RAISE = """
insert into homes as h (id, mark) values (%(id)s, %(mark)s)
on conflict (id) do update set mark = excluded.mark, marked_at = now()
"""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the home remembers.

    Attributes:
        home: its id.
        mark: the number.
        salt: of the installation that it is about, see `worker.journal.salt_mark`.
        sequences: by table, the highest id seen.
        spared_until: the spool is not swept before.
    """

    home: UUID
    mark: int
    salt: str
    sequences: dict[str, int] = field(default_factory=dict)
    spared_until: datetime | None = None

    @property
    def spared(self) -> bool:
        """Whether the spool is still to be left alone."""
        return self.spared_until is not None and datetime.now(UTC) < self.spared_until


class Marks:
    """The mark of one home. Safe to use from several processes."""

    def __init__(self, home: Path) -> None:
        self._path = home / "mark.json"

    def read(self) -> Mark | None:
        """The mark; None where the home has none yet.

        Raises:
            ConfigurationError: there is one, and it cannot be read.
        """
        try:
            facts = json.loads(self._path.read_bytes())
            until = facts.get("spared_until")
            return Mark(
                UUID(facts["home"]),
                int(facts["mark"]),
                str(facts["salt"]),
                {str(name): int(value) for name, value in facts["sequences"].items()},
                datetime.fromisoformat(until) if until else None,
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                "bad_mark",
                f"{self._path} cannot be read: {error}",
                "if it is damaged, move it away, then: gristmill reconcile",
            ) from error

    def behind(self, connection: Connection[Any]) -> bool:
        """Whether the database is older than what this home has seen, or another one altogether.

        Raises:
            ConfigurationError: see `read`.
        """
        mark = self.read()
        return mark is not None and (mark.salt != salt_mark(connection) or _mark_of(connection, mark) < mark.mark)

    def advance(self, connection: Connection[Any]) -> bool:
        """Raise the mark, in the database and then in the home. False, and nothing is raised, if it is behind."""
        with self._held():
            if self.behind(connection):
                return False
            self._raise(connection, self.read() or Mark(uuid4(), 0, salt_mark(connection)))
        return True

    def accept(self, connection: Connection[Any], *, spare: bool) -> None:
        """Take the database as it is from now on.

        Args:
            spare: leave the spool alone for `SPARE`.
        """
        with self._held():
            salt = salt_mark(connection)
            mark = self.read() or Mark(uuid4(), 0, salt)
            until = datetime.now(UTC) + SPARE if spare else mark.spared_until
            self._raise(connection, replace(mark, salt=salt, spared_until=until))

    def _raise(self, connection: Connection[Any], mark: Mark) -> None:
        rows = connection.execute(SEQUENCES.encode()).fetchall()
        highest = {name: max(value, mark.sequences.get(name, 0)) for name, _, value in rows if value is not None}
        number = max(mark.mark, _mark_of(connection, mark)) + 1
        connection.execute(RAISE, {"id": mark.home, "mark": number})
        self._write(replace(mark, mark=number, sequences=mark.sequences | highest))

    def _write(self, mark: Mark) -> None:
        part = self._path.with_suffix(".part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(asdict(mark), file, default=str)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)

    @contextmanager
    def _held(self) -> Iterator[None]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _mark_of(connection: Connection[Any], mark: Mark) -> int:
    row = connection.execute("select mark from homes where id = %s", (mark.home,)).fetchone()
    return int(row[0]) if row else 0


def advance_mark(connection: Connection[Any], settings: Settings) -> bool:
    """Raise the mark of this home; a chore of housekeeping. False if the database is behind it, which is logged."""
    return Marks(settings.home).advance(connection)


def unknown_erasures(connection: Connection[Any], home: Path) -> int:
    """How many erasures the journal of this home knows of that the database does not."""
    entries = [one for one in Journal(home).read(salt_mark(connection)) if one.deed == "erase"]
    row = connection.execute(
        "select count(*) from unnest(%s::text[], %s::timestamptz[]) j (hash, at) where not exists ("
        " select from erasures e where encode(e.hash, 'hex') = j.hash and e.erased_at = j.at)",
        ([one.hash for one in entries], [one.at for one in entries]),
    ).fetchone()
    return int(row[0]) if row else 0


def restored(connection: Connection[Any], home: Path) -> str | None:
    """What is wrong with the database if it was restored and not reconciled; None if it was not."""
    told = []
    if Marks(home).behind(connection):
        told.append(BEHIND)
    if count := unknown_erasures(connection, home):
        told.append(f"{count} erasures in the journal of this home are not in the database")
    return "; ".join(told) or None


def warn_if_restored(connection: Connection[Any], home: Path) -> bool:
    """Log a warning if the database was restored and not reconciled; whether it was."""
    try:
        found = restored(connection, home)
    except (GristmillError, psycopg.Error) as error:
        log.warning("whether the database was restored is not known: %s", error)
        return False
    if found:
        log.warning("%s; nothing is swept from the spool until it is reconciled; %s", found, REMEDY)
    return bool(found)
