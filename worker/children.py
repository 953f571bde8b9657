"""Documents that belong to others: each becomes a source of its own, below the one it was found in or comes with.

Those found inside (kind `attachment`) are recorded in the very transaction that commits their parent, files that a
sync brings along with a page (kind `enclosure`) in the one that records it, so that the two never disagree: a new
child is due, one whose bytes are the same is left alone, one that is not there any more is deleted. Their bytes lie in
the spool.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.types import Attachment
from worker import ledger_statements as statements
from worker.spool import Spool


@dataclass(frozen=True, slots=True)
class Child:
    """A document that belongs to another.

    Attributes:
        uri: its identity.
        name: what it is called there.
        location: its name in the spool; None: the bytes that are recorded are still right.
        digest: SHA-256 of its bytes in hex.
    """

    uri: str
    name: str
    location: str | None
    digest: str = ""


def spool_attachments(parent: str, attachments: Sequence[Attachment], spool: Spool) -> list[Child]:
    """Move the bytes of what was found inside the document of this uri into the spool."""
    children = []
    for one in attachments:
        if one.path is not None:
            path = Path(one.path)
            spooled = spool.copy(path, one.name)
            path.unlink()
            children.append(Child(child_uri(parent, one.name), one.name, spooled.name, spooled.digest))
    return children


def child_uri(parent: str, name: str) -> str:
    """Identity of a document found inside another: a fragment of the outermost one's uri."""
    return f"{parent}{'/' if '#' in parent else '#'}attachments/{quote(name, safe='')}"


def record_children(
    connection: Connection[Any],
    parent: int,
    *,
    tenant: str,
    depth: int,
    language: str | None,
    metadata: Mapping[str, Any],
    children: Sequence[Child],
    kind: str = "attachment",
) -> bool:
    """Make the children of a kind that a source has those given. Call inside the transaction that holds its ledger row.

    Args:
        depth: of the parent: 0 for a document that came by itself.
        metadata: what children inherit, but for a title.

    Returns:
        Whether one of them is new or has changed.
    """
    uris = [child.uri for child in children]
    inherited = {key: value for key, value in metadata.items() if key != "title"}
    gone = connection.execute(
        "select id from sources where parent_id = %s and kind = %s and state <> 'deleted' and uri <> all(%s)"
        " for update",
        (parent, kind, uris),
    ).fetchall()
    for (row_id,) in gone:
        delete_source(connection, row_id)
    news = False
    for child in children:
        location, digest = child.location, child.digest
        if location is None:
            had = connection.execute(
                "select location, split_part(fingerprint, ':', 1) from sources"
                " where tenant = %s and uri = %s and kind = %s and state <> 'deleted' and location is not null",
                (tenant, child.uri, kind),
            ).fetchone()
            if had is None:
                continue
            location, digest = had
        # What was found inside has its name in its uri.
        told = [inherited, child.name] if kind == "enclosure" else inherited
        facts = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        values = {
            "tenant": tenant,
            "uri": child.uri,
            "kind": kind,
            "fingerprint": f"{digest}:{facts}",
            "metadata": Jsonb(inherited),
            "keep_metadata": False,
            "location": location,
            "filename": child.name,
            "language": language,
            "force": False,
        }
        news |= connection.execute(statements.RECORD, values).fetchone() is not None
        connection.execute(
            "update sources set parent_id = %s, depth = %s where tenant = %s and uri = %s and parent_id is null",
            (parent, depth + 1, tenant, child.uri),
        )
    return news


def delete_source(connection: Connection[Any], source_id: int) -> None:
    """Take a source whose row the caller has locked out of the index, with everything found inside it."""
    for row_id in (source_id, *_below(connection, source_id)):
        connection.execute("delete from documents where source_id = %s", (row_id,))
        connection.execute(statements.DELETE, (row_id,))


def move_children(connection: Connection[Any], source_id: int, old: str, new: str) -> None:
    """After a rename of their parent: children keep their rows and chunks, under uris that begin with the new one.

    Whoever works on one knows it by its old uri, and is fenced. Those that are deleted stay where they were, and belong
    to whoever comes to be there. The caller has locked the parent's row.
    """
    family = [source_id, *_below(connection, source_id)]
    connection.execute("update sources set parent_id = null where parent_id = any(%s) and state = 'deleted'", (family,))
    for row_id in family[1:]:
        values = {"id": row_id, "old": old, "new": new}
        connection.execute(
            "delete from sources where state = 'deleted' and (tenant, uri) ="
            " (select tenant, %(new)s || substr(uri, length(%(old)s) + 1) from sources where id = %(id)s)",
            values,
        )
        connection.execute(
            "update sources set uri = %(new)s || substr(uri, length(%(old)s) + 1), updated_at = now()"
            " where id = %(id)s",
            values,
        )
        connection.execute(statements.FENCE, (row_id,))
        connection.execute(
            "update sources c set metadata = c.metadata || jsonb_build_object('parent_uri', p.uri)"
            " from sources p where p.id = c.parent_id and c.id = %(id)s",
            values,
        )
        connection.execute(
            "update documents d set updated_at = now(),"
            " metadata = d.metadata || jsonb_build_object('uri', c.uri, 'parent_uri', p.uri)"
            " from sources c join sources p on p.id = c.parent_id where c.id = %(id)s and d.source_id = c.id",
            values,
        )


def _below(connection: Connection[Any], source_id: int) -> Iterator[int]:
    """Ids of all that was found inside a source, at any depth, parents first; their rows are locked."""
    level = [source_id]
    while level:
        rows = connection.execute(
            "select id from sources where parent_id = any(%s) and state <> 'deleted' order by id for update", (level,)
        ).fetchall()
        level = [row[0] for row in rows]
        yield from level
