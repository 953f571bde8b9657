"""The kinds of values that callers send, checked once for all endpoints."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from pipelines.errors import PermanentError
from pipelines.language import CONFIGURATIONS
from worker.addresses import check_url

MOST_METADATA_BYTES = 64 * 1024  # it is repeated on every chunk of the document
MOST_METADATA_DEPTH = 20
MOST_WAIT_SECONDS = 300.0
MOST_FILENAME_BYTES = 200
MOST_ID = 2**63 - 1

_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def mend(text: str) -> str:
    """Text that a database can hold: NUL dropped, half a surrogate pair replaced.

    JavaScript makes the latter whenever it cuts a string inside an emoji, so it is no reason to refuse a document.
    """
    return _SURROGATES.sub("\ufffd", text).replace("\0", "")


def safe_filename(name: str, default: str = "upload") -> str:
    """A name for people to read, never a path: the last part, without control characters, of a length that fits."""
    last = _CONTROL.sub("", mend(name)).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].strip()
    if last.strip(".") == "":
        return default
    stem, dot, suffix = last.rpartition(".")
    if not dot or not stem or len(suffix.encode()) > 20:
        stem, dot, suffix = last, "", ""
    room = MOST_FILENAME_BYTES - len((dot + suffix).encode())
    return stem.encode()[:room].decode(errors="ignore") + dot + suffix


def _mended(value: Any) -> Any:
    return mend(value) if isinstance(value, str) else value


def _uri(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError("a uri holds no control characters")
    if value != value.strip():
        raise ValueError("a uri neither starts nor ends with white space")
    if value.lower().startswith("file:"):
        raise ValueError("file: uris belong to the files of watched folders")
    return value


def _metadata(value: Any) -> Any:
    """Mended, or refused if JSON or Postgres could not hold it."""
    if not isinstance(value, dict):
        raise ValueError("metadata is a JSON object")
    mended = _mended_json(value, 1)
    if len(json.dumps(mended, ensure_ascii=False).encode()) > MOST_METADATA_BYTES:
        raise ValueError(f"metadata is at most {MOST_METADATA_BYTES:,} bytes of JSON")
    return mended


def _mended_json(value: Any, depth: int) -> Any:
    if depth > MOST_METADATA_DEPTH:
        raise ValueError(f"metadata is nested at most {MOST_METADATA_DEPTH} deep")
    match value:
        case dict():
            return {mend(str(key)): _mended_json(one, depth + 1) for key, one in value.items()}
        case list():
            return [_mended_json(one, depth + 1) for one in value]
        case str():
            return mend(value)
        case float() if not math.isfinite(value):
            raise ValueError("JSON has no infinite numbers and no NaN")
        case int() if value.bit_length() > 4096:
            raise ValueError("a number has too many digits")
        case _:
            return value


def _language(value: str) -> str:
    name = value.strip().lower()
    code = re.split("[-_]", name)[0]
    return CONFIGURATIONS.get(code, name) if len(code) == 2 else name


def _http_url(value: str) -> str:
    try:
        check_url(value)
    except PermanentError as error:
        raise ValueError(error.cause) from error
    return value


Uri = Annotated[
    str,
    AfterValidator(_uri),
    Field(
        min_length=1,
        max_length=2048,
        description="Identity of the document: the same uri again is an update. Any text of your own",
        examples=["crm:contract/4711"],
    ),
]
Metadata = Annotated[
    dict[str, Any],
    BeforeValidator(_metadata),
    Field(description="Put on every passage, for filters and citations", examples=[{"department": "legal"}]),
]
Language = Annotated[
    str,
    AfterValidator(_language),
    Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,62}$",
        description="Text search configuration of Postgres, or a code such as `fr`; left out, it is detected",
        examples=["french"],
    ),
]
HttpUrl = Annotated[
    str, AfterValidator(_http_url), Field(min_length=1, max_length=2048, examples=["https://example.com/handbook"])
]
Text = Annotated[str, BeforeValidator(_mended)]
Filename = Annotated[str, BeforeValidator(_mended), Field(max_length=4096, examples=["contract.pdf"])]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=MOST_WAIT_SECONDS,
        allow_inf_nan=False,
        description="Seconds to wait for the document to become searchable before answering",
        examples=[10],
    ),
]
"""Values as models and parameters declare them."""
