from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError, UnavailableError
from pipelines.extract.attachments import Attachments
from pipelines.extract.job import Job
from pipelines.extract.rules import ExtractRules
from pipelines.extract.wire import (
    Request,
    dump_error,
    dump_request,
    dump_result,
    load_error,
    load_request,
    load_result,
)
from pipelines.types import Attachment, Block, Extracted, OcrPage, PageReport


def test_a_document_survives_the_pipe() -> None:
    extracted = Extracted(
        "application/pdf",
        "Tïtle",
        (Block("heading", "A\u2028b", level=1, page=1), Block("table", "x | y")),
        (PageReport(1, "ocr", "no-text", 91.5), PageReport(2, "blank", "no-ink")),
        {"author": "Ana", "warnings": ["w"]},
        (Attachment("a.pdf", 12, "application/pdf", "/tmp/0000.pdf"),),
        (3, 4),
    )
    line = dump_result(extracted)
    assert "\n" not in line
    assert load_result(json.loads(line)["result"]) == extracted


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
        ExtractRules(ocr_languages="deu", seconds=1.5),
        ocr={3: page},
        skip={7: "crashed"},
        attachments=Attachments(tmp_path),
    )
    assert load_request(dump_request(Request(job, (1, 2), 7))) == Request(job, (1, 2), 7)
