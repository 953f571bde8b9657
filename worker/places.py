"""Between paths and the uris that name documents in the ledger."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipelines.errors import PermanentError


def file_uri(path: Path) -> str:
    """The uri of a file, made absolute, symbolic links left as they are."""
    return path.expanduser().absolute().as_uri()


def local_path(uri: str) -> Path:
    """The file behind a `file:` uri.

    Raises:
        PermanentError: the uri is of another scheme.
    """
    parts = urlsplit(uri)
    if parts.scheme != "file":
        raise PermanentError("unsupported_uri", f"{uri} is not a file: uri", "give a path or a file: uri")
    return Path(unquote(parts.path))


def file_name(uri: str) -> str:
    """The last part of a uri, for people."""
    return unquote(urlsplit(uri).path).rstrip("/").rsplit("/", 1)[-1] or uri
