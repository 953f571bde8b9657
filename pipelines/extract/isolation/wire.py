"""How an extraction travels from the parsing process to the one that waits: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipelines import errors
from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract.attachments import Attachments
from pipelines.extract.job import Job
from pipelines.extract.rules import ExtractRules
from pipelines.types import Attachment, Block, Extracted, OcrPage, PageReport

NO_MEMORY = 77
"""Status of a parsing process that has not even the memory to say that there is none left."""

_LINE_SIZE = 2**20
_BLOCK_OVERHEAD = 64
_CLASSES: dict[str, type[GristmillError]] = {
    cls.__name__: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, GristmillError)
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a parsing process is asked to do.

    Attributes:
        job: the file; its `progress` and `recognised` do not travel.
        pages: numbers of the pages to OCR and nothing else; None: read the whole document.
        parent: process id that it must not outlive.
    """

    job: Job
    pages: tuple[int, ...] | None
    parent: int


def dump_request(request: Request) -> str:
    """What a parsing process reads from its standard input."""
    job = request.job
    folder = job.attachments.folder
    return json.dumps(
        {
            "path": str(job.path.absolute()),
            "mime": job.mime,
            "rules": asdict(job.rules),
            "ocr": [asdict(page) for page in job.ocr.values()],
            "skip": list(job.skip.items()),
            "folder": str(folder.absolute()) if folder else None,
            "pages": request.pages,
            "parent": request.parent,
        }
    )


def load_request(text: str) -> Request:
    """The inverse of `dump_request`."""
    fields = json.loads(text)
    rules = ExtractRules(**fields["rules"])
    job = Job(
        path=Path(fields["path"]),
        mime=fields["mime"],
        rules=rules,
        ocr={page["number"]: load_page(page) for page in fields["ocr"]},
        skip=dict(fields["skip"]),
        attachments=Attachments(Path(fields["folder"]) if fields["folder"] else None, rules.max_bytes),
    )
    return Request(job, None if fields["pages"] is None else tuple(fields["pages"]), fields["parent"])


def dump_page(page: OcrPage) -> str:
    """One line that holds what OCR made of a page."""
    return json.dumps({"ocr": asdict(page)}, ensure_ascii=False)


def load_page(fields: Mapping[str, Any]) -> OcrPage:
    """Rebuild a page from its fields."""
    return OcrPage(**{**fields, "paragraphs": tuple(fields["paragraphs"])})


def dump_progress(page: int, pages: int) -> str:
    """One line that says which page was begun; 0: none, the pages are done."""
    return json.dumps({"page": page, "pages": pages})


def dump_result(extracted: Extracted) -> Iterator[str]:
    """Lines that hold a whole document, its blocks first: neither side has to hold it twice."""
    batch: list[tuple[str, str, int, int | None, tuple[str, ...]]] = []
    size = 0
    for block in extracted.blocks:
        batch.append((block.kind, block.text, block.level, block.page, block.hidden))
        size += len(block.text) + _BLOCK_OVERHEAD
        if size >= _LINE_SIZE:
            # Not escaped: half the bytes, and half the memory of whoever reads them, in most scripts.
            yield json.dumps({"blocks": batch}, ensure_ascii=False)
            batch, size = [], 0
    if batch:
        yield json.dumps({"blocks": batch}, ensure_ascii=False)
    rest = asdict(replace(extracted, blocks=()))
    yield json.dumps({"result": rest}, default=str, ensure_ascii=False)


def dump_end() -> str:
    """The last line of a process that did its work."""
    return json.dumps({"end": True})


def dump_error(error: GristmillError) -> str:
    """One line that holds an error, with its class."""
    return json.dumps(
        {
            "error": {
                "class": type(error).__name__,
                "code": error.code,
                "cause": error.cause,
                "remedy": error.remedy,
                "retry_after": getattr(error, "retry_after", None),
            }
        }
    )


def load_blocks(rows: Sequence[Sequence[Any]]) -> Iterator[Block]:
    """Rebuild blocks from the `blocks` of a line."""
    return (Block(kind, text, level, page, tuple(hidden)) for kind, text, level, page, hidden in rows)


def load_result(fields: dict[str, Any], blocks: Sequence[Block]) -> Extracted:
    """Rebuild a document from the `result` of a line and the blocks of those before it."""
    return Extracted(
        mime=fields["mime"],
        title=fields["title"],
        blocks=tuple(blocks),
        pages=tuple(PageReport(**page) for page in fields["pages"]),
        metadata=fields["metadata"],
        attachments=tuple(Attachment(**one) for one in fields["attachments"]),
        awaiting=tuple(fields["awaiting"]),
    )


def load_error(fields: dict[str, Any]) -> GristmillError:
    """Rebuild an error from the `error` of a line, as the class it was."""
    cls = _CLASSES.get(fields["class"], PermanentError)
    if issubclass(cls, RetryableError):
        return cls(fields["code"], fields["cause"], fields["remedy"], retry_after=fields["retry_after"])
    return cls(fields["code"], fields["cause"], fields["remedy"])
