"""The command that answers questions."""

from __future__ import annotations

import json
import textwrap
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from pipelines.embed import open_embedder
from pipelines.errors import PermanentError
from pipelines.search import MOST_HITS, Hit, Options
from pipelines.search import search as run_search
from worker.cli.output import Json, Tenant, console, print_json, print_table, settings
from worker.database import embedder_spec, open_database


class ModeName(StrEnum):
    """Which legs take part."""

    HYBRID = "hybrid"
    KEYWORD = "keyword"
    VECTOR = "vector"
    AUTO = "auto"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(search)


def search(
    query: Annotated[str, typer.Argument(help="A question, some words, or a code")],
    k: Annotated[int, typer.Option("-k", min=1, max=MOST_HITS, help="How many passages")] = 5,
    mode: Annotated[ModeName, typer.Option(help="Which legs take part; auto looks at the question")] = ModeName.HYBRID,
    filter: Annotated[str | None, typer.Option(help="Metadata that a hit must contain, as a JSON object")] = None,
    source: Annotated[list[int] | None, typer.Option(help="Only from the document with this id; repeatable")] = None,
    language: Annotated[str | None, typer.Option(help="Only passages in this language, e.g. french")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only passages added at or after this time")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only passages added before this time")] = None,
    neighbours: Annotated[int, typer.Option(min=0, max=100, help="Chunks to show before and after each hit")] = 0,
    rrf_k: Annotated[int | None, typer.Option(min=1, help="Fuse by reciprocal rank with this k")] = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Find passages by meaning and by exact code."""
    found = settings(tenant)
    options = Options(
        k=k,
        mode=mode.value,
        filter=_filter(filter),
        sources=source,
        language=language,
        since=since.astimezone() if since else None,
        until=until.astimezone() if until else None,
        neighbours=neighbours,
        rrf_k=rrf_k,
        highlight=True,
        tenant=found.tenant,
    )
    embedder = None if mode is ModeName.KEYWORD else open_embedder(embedder_spec(found))
    with open_database(found, application="gristmill cli") as connection:
        hits = run_search(connection, query, embedder, options)
    if as_json:
        print_json([hit.as_json() for hit in hits])
        return
    if not hits:
        console.print("nothing found")
        return
    print_table(
        ["", "source", "page", "found by", "passage"],
        [
            (
                place,
                hit.metadata.get("filename") or hit.uri,
                hit.metadata.get("page"),
                legs(hit),
                _shorten(hit.content),
            )
            for place, hit in enumerate(hits, 1)
        ],
    )


def legs(hit: Hit) -> str:
    """Which legs found a hit, and where it stood in each."""
    return "\n".join(f"{leg} {rank}" for leg, rank in hit.ranks.items() if rank is not None)


def _filter(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise PermanentError("invalid_filter", f"the filter is not JSON: {error}", '--filter \'{"k": "v"}\'') from error
    if not isinstance(value, dict):
        raise PermanentError("invalid_filter", "the filter is not a JSON object", '--filter \'{"k": "v"}\'')
    return value


def _shorten(text: str) -> str:
    return textwrap.shorten(" ".join(text.split()), 240, placeholder=" …")
