"""How an extraction travels from the parsing process to the one that waits: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pipelines import errors
from pipelines.errors import GristmillError, PermanentError, RetryableError
from pipelines.extract.rules import ExtractRules
from pipelines.types import Block, Extracted, PageReport

_CLASSES: dict[str, type[GristmillError]] = {
    cls.__name__: cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, GristmillError)
}


def dump_request(path: str, mime: str, rules: ExtractRules, parent: int) -> str:
    """The argument of a parsing process; `parent` is the process id that it must not outlive."""
    return json.dumps({"path": path, "mime": mime, "rules": asdict(rules), "parent": parent})


def load_request(text: str) -> tuple[str, str, ExtractRules, int]:
    """The inverse of `dump_request`: path, mime, rules, parent."""
    request = json.loads(text)
    return request["path"], request["mime"], ExtractRules(**request["rules"]), request["parent"]


def dump_progress(page: int, pages: int) -> str:
    """One line that says which page was begun."""
    return json.dumps({"page": page, "pages": pages})


def dump_result(extracted: Extracted) -> str:
    """One line that holds a whole document."""
    return json.dumps({"result": asdict(extracted)}, default=str)


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


def load_result(fields: dict[str, Any]) -> Extracted:
    """Rebuild a document from the `result` of a line."""
    return Extracted(
        mime=fields["mime"],
        title=fields["title"],
        blocks=tuple(Block(**block) for block in fields["blocks"]),
        pages=tuple(PageReport(**page) for page in fields["pages"]),
        metadata=fields["metadata"],
    )


def load_error(fields: dict[str, Any]) -> GristmillError:
    """Rebuild an error from the `error` of a line, as the class it was."""
    cls = _CLASSES.get(fields["class"], PermanentError)
    if issubclass(cls, RetryableError):
        return cls(fields["code"], fields["cause"], fields["remedy"], retry_after=fields["retry_after"])
    return cls(fields["code"], fields["cause"], fields["remedy"])
