"""`gristmill extract`: what Gristmill reads in one file, without any service."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.chunk import chunk
from pipelines.embed import limit_of, open_embedder
from pipelines.errors import GristmillError
from pipelines.extract import extract as read
from pipelines.extract.attachments import MAX_DEPTH
from pipelines.sniff import CODE
from pipelines.types import BLOCK_SEPARATOR, Extracted
from worker.cli.output import Json, console, errors, fail, print_json, print_table, settings
from worker.database import embedder_spec
from worker.ingest import chunk_rules, extract_rules
from worker.settings import Settings

NOT_READ = 3


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(extract)


def extract(
    file: Annotated[Path, typer.Argument(help="The file to read")],
    as_json: Json = False,
) -> None:
    """Read one file and show what became of it, page by page; nothing is indexed and no service is needed.

    Exit code 0 when it could be read, 3 when it could not.
    """
    answer = describe(file, file.name, settings())
    failed = answer["state"] == "failed"
    if as_json:
        print_json(answer)
    elif failed:
        error = answer["error"]
        fail(GristmillError(error["code"], f"{file}: {error['message']}", error["remedy"]), as_json=False)
    else:
        _show(answer)
    raise typer.Exit(NOT_READ if failed else 0)


def describe(path: Path, name: str, found: Settings, *, depth: int = 0) -> dict[str, Any]:
    """Everything there is to say about one file and the files inside it, as plain data."""
    began = time.monotonic()
    answer: dict[str, Any] = {
        "state": "done", "error": None, "text": "", "pages": [], "chunks": [], "metadata": {}, "children": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
        try:
            extracted = read(path, name=name, rules=extract_rules(found), attachments=Path(folder))
        except GristmillError as error:
            answer["state"] = "failed"
            answer["error"] = {"code": error.code, "message": error.cause, "remedy": error.remedy}
        else:
            answer |= _read(extracted, path, found)
            for one in extracted.attachments:
                child: dict[str, Any] = {"name": one.name, "mime": one.mime, "bytes": one.size}
                if one.path and depth < MAX_DEPTH:
                    child |= describe(Path(one.path), one.name, found, depth=depth + 1)
                answer["children"].append(child)
    answer["seconds"] = round(time.monotonic() - began, 3)
    return answer


def _read(extracted: Extracted, path: Path, found: Settings) -> dict[str, Any]:
    texts: dict[int | None, list[str]] = defaultdict(list)
    for block in extracted.blocks:
        texts[block.page].append(block.text)
    place = "/".join(path.absolute().parts[-3:]) if extracted.mime == CODE else None
    limit = limit_of(open_embedder(embedder_spec(found)))
    chunks = chunk(extracted, chunk_rules(found), title=place, limit=limit)
    return {
        "text": extracted.text,
        "pages": [asdict(page) | {"text": BLOCK_SEPARATOR.join(texts[page.number])} for page in extracted.pages],
        "chunks": [asdict(one) for one in chunks],
        "metadata": {"title": extracted.title, "mime": extracted.mime, **extracted.metadata},
    }


def _show(answer: dict[str, Any]) -> None:
    facts = {key: value for key, value in answer["metadata"].items() if value not in (None, [], "")}
    print_table(["metadata", ""], list(facts.items()))
    if answer["pages"]:
        columns = ["page", "decision", "reason", "confidence", "problem", "characters"]
        rows = [
            (page["number"], page["decision"], page["reason"], page["confidence"], page["problem"], len(page["text"]))
            for page in answer["pages"]
        ]
        print_table(columns, rows)
    if answer["children"]:
        print_table(["inside it", "type", "bytes"], [(c["name"], c["mime"], c["bytes"]) for c in answer["children"]])
    console.print(answer["text"], markup=False, highlight=False, soft_wrap=True)
    errors.print(f"{len(answer['chunks'])} chunks, {answer['seconds']:.2f} s")
