from __future__ import annotations

import json

import pytest

from pipelines.errors import ConfigurationError, GristmillError, PermanentError, RetryableError, UnavailableError
from pipelines.extract.rules import ExtractRules
from pipelines.extract.wire import (
    dump_error,
    dump_request,
    dump_result,
    load_error,
    load_request,
    load_result,
)
from pipelines.types import Block, Extracted, PageReport


def test_a_document_survives_the_pipe() -> None:
    extracted = Extracted(
        "application/pdf",
        "Tïtle",
        (Block("heading", "A\u2028b", level=1, page=1), Block("table", "x | y")),
        (PageReport(1, "ocr", "no-text", 91.5), PageReport(2, "blank", "no-ink")),
        {"author": "Ana", "warnings": ["w"]},
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


def test_a_request_survives_the_command_line() -> None:
    rules = ExtractRules(ocr_languages="deu", seconds=1.5)
    assert load_request(dump_request("/a b/ü.pdf", "application/pdf", rules, 7)) == (
        "/a b/ü.pdf",
        "application/pdf",
        rules,
        7,
    )
