from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError, UnavailableError
from pipelines.extract.attachments import Attachments
from pipelines.extract.isolation.wire import (
    Request,
    dump_error,
    dump_request,
    dump_result,
    load_blocks,
    load_error,
    load_request,
    load_result,
)
from pipelines.extract.job import Job
from pipelines.extract.rules import ExtractRules
from pipelines.types import Attachment, Block, Extracted, OcrPage, PageReport


def test_a_document_survives_the_pipe() -> None:
    extracted = Extracted(
        "application/pdf",
        "Tïtle",
        (Block("heading", "A\u2028b", level=1, page=1), Block("table", "x | y"), Block("code", "é\n" * 2**20)),
        (PageReport(1, "ocr", "no-text", 91.5), PageReport(2, "blank", "no-ink")),
        {"author": "Ana", "warnings": ["w"]},
        (Attachment("a.pdf", 12, "application/pdf", "/tmp/0000.pdf"),),
        (3, 4),
    )
    *parts, last = dump_result(extracted)
    assert not any("\n" in line for line in (*parts, last))
    blocks = [block for line in parts for block in load_blocks(json.loads(line)["blocks"])]
    assert load_result(json.loads(last)["result"], blocks) == extracted


def test_blocks_travel_in_lines_of_bounded_size() -> None:
    extracted = Extracted("text/plain", None, tuple(Block("paragraph", "x" * 1000) for _ in range(5000)))
    *parts, _ = dump_result(extracted)
    assert len(parts) >= 5
    assert max(map(len, parts)) < 2**20 + 2**18


@pytest.mark.parametrize(
    "error",
    [
        PermanentError("encrypted", "cause", "remedy"),
        ConfigurationError("c", "cause"),
        RetryableError("r", "cause", "remedy", retry_after=2.5),
        UnavailableError("u", "cause", retry_after=None),
    ],
)
def test_an_error_keeps_its_class_and_fields(error: GristmillError) -> None:
    rebuilt = load_error(json.loads(dump_error(error))["error"])
    assert type(rebuilt) is type(error)
    assert (rebuilt.code, rebuilt.cause, rebuilt.remedy) == (error.code, error.cause, error.remedy)
    assert getattr(rebuilt, "retry_after", None) == getattr(error, "retry_after", None)


def test_a_request_survives_the_pipe(tmp_path: Path) -> None:
    page = OcrPage(3, ("Guten Tag", "Ende"), 91.5, 90, "deu")
    job = Job(
        Path("/a b/ü.pdf"),
        "application/pdf",
        ExtractRules(ocr_languages="deu", seconds=1.5, max_bytes=1000),
        ocr={3: page},
        skip={7: "crashed"},
        attachments=Attachments(tmp_path, largest=1000),
    )
    assert load_request(dump_request(Request(job, (1, 2), 7))) == Request(job, (1, 2), 7)
