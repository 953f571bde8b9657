"""Chunks and vectors in Postgres: the swap that makes a new version of a document visible, and the embedding cache."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pgvector import Vector as PgVector
from psycopg import Connection
from psycopg.types.json import Jsonb

from pipelines.types import Chunk, EmbeddedChunk, Vector


@dataclass(frozen=True, slots=True)
class Swapped:
    """What a swap did: rows that stayed (id and vector untouched), rows added, rows removed."""

    kept: int
    inserted: int
    deleted: int


def swap(
    connection: Connection[Any],
    *,
    source_id: int,
    tenant: str,
    metadata: Mapping[str, Any],
    chunks: Sequence[EmbeddedChunk],
    halfway: Callable[[], object] = lambda: None,
) -> Swapped:
    """Replace the chunks of one source. Call inside the transaction that holds the source's ledger row.

    Old and new chunks are matched by content hash first, so an unchanged passage keeps its row, id and vector wherever
    it moves to. Readers see the old version until the caller commits, then the new one, never a mixture.

    Args:
        metadata: put on every chunk, together with its page (`page_end` too where it ends on another) and section.
        halfway: called when old chunks have gone or moved and new ones are not there yet, as tests want it.
    """
    old = connection.execute(
        "select id, content_hash, model from documents where source_id = %s order by chunk_index",
        (source_id,),
    ).fetchall()
    reusable: dict[tuple[bytes, str | None], deque[int]] = defaultdict(deque)
    for row_id, content_hash, model in old:
        reusable[content_hash, model].append(row_id)

    kept: list[tuple[int, EmbeddedChunk]] = []
    added: list[EmbeddedChunk] = []
    for item in chunks:
        same = reusable[item.chunk.content_hash, item.model]
        if same:
            kept.append((same.popleft(), item))
        else:
            added.append(item)
    gone = [row_id for rows in reusable.values() for row_id in rows]

    with connection.cursor() as cursor:
        if gone:
            cursor.execute("delete from documents where id = any(%s)", (gone,))
        if kept:
            cursor.executemany(
                """
                update documents set chunk_index = %(index)s, metadata = %(metadata)s, language = %(language)s,
                       page = %(page)s, start_char = %(start)s, end_char = %(end)s, updated_at = now()
                where id = %(id)s and (chunk_index, metadata, language, page, start_char, end_char)
                      is distinct from (%(index)s, %(metadata)s, %(language)s, %(page)s, %(start)s, %(end)s)
                """,
                [{"id": row_id, **_columns(item.chunk, metadata)} for row_id, item in kept],
            )
        halfway()
        if added:
            cursor.executemany(
                """
                insert into documents (source_id, tenant, chunk_index, content, context, content_hash, metadata,
                                       language, page, start_char, end_char, model, embedding)
                values (%(source_id)s, %(tenant)s, %(index)s, %(content)s, %(context)s, %(hash)s, %(metadata)s,
                        %(language)s, %(page)s, %(start)s, %(end)s, %(model)s, %(embedding)b)
                """,
                [
                    {
                        "source_id": source_id,
                        "tenant": tenant,
                        "content": item.chunk.content,
                        "context": item.chunk.context,
                        "hash": item.chunk.content_hash,
                        "model": item.model,
                        "embedding": PgVector(item.vector),
                        **_columns(item.chunk, metadata),
                    }
                    for item in added
                ],
            )
    return Swapped(kept=len(kept), inserted=len(added), deleted=len(gone))


def _columns(chunk: Chunk, metadata: Mapping[str, Any]) -> dict[str, Any]:
    facts = dict(metadata)
    if chunk.page is not None:
        facts["page"] = chunk.page
    if chunk.page_end not in (None, chunk.page):
        facts["page_end"] = chunk.page_end
    if chunk.section:
        facts["section"] = " › ".join(chunk.section)
    if chunk.hidden:
        beside = metadata.get("hidden")  # what a caller has put there may be anything
        told = {kind for kind in beside if isinstance(kind, str)} if isinstance(beside, list) else set()
        facts["hidden_text"], facts["hidden"] = True, sorted(told.union(chunk.hidden))
    return {
        "index": chunk.index,
        "metadata": Jsonb(facts),
        "language": chunk.language,
        "page": chunk.page,
        "start": chunk.start,
        "end": chunk.end,
    }


class PostgresVectors:
    """Vectors by (model, text hash): those already in the source's own rows, then the embedding cache."""

    def __init__(self, connection: Connection[Any], source_id: int | None = None) -> None:
        self._connection = connection
        self._source_id = source_id

    def get(self, model: str, hashes: Sequence[bytes]) -> dict[bytes, Vector]:
        """The vectors known for these texts, float32; texts that are not known are left out."""
        found: dict[bytes, Vector] = {}
        wanted = list(dict.fromkeys(hashes))
        if self._source_id is not None:
            rows = self._connection.execute(
                "select content_hash, embedding from documents"
                " where source_id = %s and model = %s and content_hash = any(%s)",
                (self._source_id, model, wanted),
                binary=True,
            )
            found.update((bytes(key), as_vector(value)) for key, value in rows)
        missing = [key for key in wanted if key not in found]
        if missing:
            rows = self._connection.execute(
                "select text_hash, embedding from embedding_cache where model = %s and text_hash = any(%s)",
                (model, missing),
                binary=True,
            )
            found.update((bytes(key), as_vector(value)) for key, value in rows)
        return found

    def put(self, model: str, items: Mapping[bytes, Vector]) -> None:
        """Remember vectors, but none of a source that was erased meanwhile.

        In hash order, so that two writers of the same texts cannot deadlock.
        """
        with self._connection.transaction(), self._connection.cursor() as cursor:
            there = cursor.execute("select from sources where id = %s for key share", (self._source_id,)).fetchone()
            if self._source_id is not None and there is None:
                return
            cursor.executemany(
                "insert into embedding_cache (model, text_hash, embedding) values (%s, %s, %b) on conflict do nothing",
                [(model, key, PgVector(items[key])) for key in sorted(items)],
            )


def as_vector(value: Any) -> Vector:
    """A vector column's value as float32 array, shape `(dimensions,)`."""
    return np.asarray(value.to_numpy() if isinstance(value, PgVector) else value, dtype=np.float32)
