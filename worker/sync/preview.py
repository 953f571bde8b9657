"""What a run would do, without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from worker.connectors.contract import Connector, Incomplete
from worker.sync.memory import Memories
from worker.sync.storable import is_name, said, storable_version


def preview(connector: Connector, memories: Memories, *, full: bool, now: datetime) -> Iterator[tuple[str, str]]:
    """Pairs of an action and a uri (or, for `incomplete`, a reason), as the listing gives them.

    Only the listing is asked for; nothing is fetched and nothing written. `new` and `changed` would be fetched,
    `visit` is due for a look that may find it as it was, `missing` is not listed any more.

    Raises:
        GristmillError: the listing failed.
    """
    gaps: list[str] = []
    seen: set[int] = set()
    for entry in connector.listing(full=full):
        if isinstance(entry, Incomplete):
            gaps.append(entry.prefix)
            yield "incomplete", said(entry.reason)
            continue
        seen.add(hash(entry.key))
        if not is_name(entry.key) or not is_name(entry.uri):
            yield "incomplete", f"{said(entry.key)!r} cannot be kept"
            continue
        entry = replace(entry, version=storable_version(entry.version))
        memory = memories.get(entry.key)
        if memory is None:
            yield "new", entry.uri
        elif memory.wants_visit(entry.version, now):
            differs = entry.version is not None and entry.version != memory.version
            yield "changed" if differs else "visit", memory.uri
    for memory in memories.all():
        if hash(memory.key) in seen or memory.removed_at is not None:
            continue
        concerned = full and connector.absence != "nothing"
        if concerned and not any(memory.uri.startswith(prefix) for prefix in gaps):
            yield "missing", memory.uri
        elif memory.check_at is not None and memory.check_at <= now:
            yield "visit", memory.uri
