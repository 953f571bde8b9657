"""Forms with files, taken apart as they arrive: files go straight into the spool, none is ever held in memory."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from worker.receivers.body import too_large
from worker.receivers.fields import safe_filename
from worker.receivers.problems import ProblemError
from worker.spool import Incoming, Spool, Spooled

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# It writes a line for every byte that surprises it: strangers would fill the log.
logging.getLogger("python_multipart").setLevel(logging.ERROR)

MOST_FILES = 100
MOST_FIELDS = 200
MOST_FIELD_BYTES = 256 * 1024
FORM_BYTES = 2**20
"""How much a form may hold beside its files: boundaries, headers, fields."""

PIECE_BYTES = 256 * 1024


@dataclass(slots=True)
class Upload:
    """A file of a request, in the spool but not yet kept."""

    filename: str
    incoming: Incoming
    size: int = 0

    def write(self, piece: bytes) -> None:
        """Add some bytes.

        Raises:
            PermanentError: it becomes larger than a document may be.
        """
        self.size += len(piece)
        self.incoming.write(piece)

    def keep(self) -> Spooled:
        """Keep the file: until then it vanishes with the request."""
        return self.incoming.finish()


@dataclass(slots=True)
class Form:
    """What a form held: text fields with their values in order, and files in order."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    uploads: list[Upload] = field(default_factory=list)


class FormReader:
    """Takes a form apart. Blocking; give it the pieces from a thread.

    Args:
        boundary: from the Content-Type header.
        spool: where files go.
        stack: closed by the caller at the end of the request, which removes every file that was not kept.
    """

    def __init__(self, boundary: bytes, spool: Spool, stack: ExitStack) -> None:
        self._spool = spool
        self._stack = stack
        self._form = Form()
        self._count = 0
        self._headers: dict[bytes, bytes] = {}
        self._name = self._value = b""
        self._upload: Upload | None = None
        self._unnamed = False
        self._key = ""
        self._text = bytearray()
        self._ended = False
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_name,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._all,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError as error:
            raise _malformed(str(error)) from error

    def write(self, piece: bytes) -> None:
        """Take the next bytes of the body.

        Raises:
            ProblemError: 400, this is no form.
            PermanentError: a file is too large.
        """
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _malformed(str(error)) from error

    def finish(self) -> Form:
        """The form, at the end of the body.

        Raises:
            ProblemError: 400, the form does not end where the body does.
        """
        if not self._ended:
            raise _malformed("it ends before its last boundary")
        return self._form

    def _begin(self) -> None:
        self._headers.clear()
        self._name = self._value = b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name = self._value = b""

    def _headers_end(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b"").decode("latin-1"))
        if kind != b"form-data":
            raise _malformed("a part has no Content-Disposition of form-data")
        if self._headers.get(b"content-transfer-encoding", b"binary").strip().lower() not in (
            b"binary",
            b"8bit",
            b"7bit",
        ):
            raise _malformed("a part is encoded for mail")
        self._key = options.get(b"name", b"").decode(errors="replace")
        filename = options.get(b"filename")
        media_type = self._headers.get(b"content-type", b"text/plain").split(b";")[0].strip().lower()
        if filename is None and (media_type in (b"text/plain", b"application/json") or not media_type):
            if sum(map(len, self._form.fields.values())) >= MOST_FIELDS:
                raise _malformed(f"it has more than {MOST_FIELDS} fields")
            self._text = bytearray()
            return
        if len(self._form.uploads) >= MOST_FILES:
            raise _malformed(f"it has more than {MOST_FILES} files")
        self._unnamed = not filename
        name = safe_filename((filename or b"").decode(errors="replace"), safe_filename(self._key))
        self._upload = Upload(name, self._stack.enter_context(self._spool.open(name)))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._upload:
            self._upload.write(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > MOST_FIELD_BYTES:
            raise _malformed(
                f"the field {self._key[:100]!r} has more than {MOST_FIELD_BYTES:,} bytes; send it as a file"
            )

    def _end(self) -> None:
        if self._upload is None:
            try:
                self._form.fields.setdefault(self._key, []).append(self._text.decode())
            except UnicodeDecodeError as error:
                raise _malformed(f"the field {self._key[:100]!r} is not UTF-8") from error
        elif self._upload.size or not self._unnamed:  # a browser sends an empty one where no file was chosen
            self._form.uploads.append(self._upload)
        self._upload = None

    def _all(self) -> None:
        self._ended = True


async def pieces(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body in pieces that are worth a thread's while.

    Raises:
        ProblemError: 413, it is larger than `limit` bytes: before the first byte is read, where the length is given.
        ClientDisconnect: the caller has gone.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise too_large(limit)
    taken = 0
    gathered = bytearray()
    async for piece in request.stream():
        taken += len(piece)
        if taken > limit:
            raise too_large(limit)
        gathered += piece
        if len(gathered) >= PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


async def receive_form(request: Request, spool: Spool, stack: ExitStack, max_bytes: int) -> Form:
    """The form that a request consists of; the files in it may have `max_bytes` in all.

    Raises:
        ProblemError: 400, it is malformed; 413, it is too large.
        ClientDisconnect: the caller has gone.
    """
    options = parse_options_header(request.headers["content-type"])[1]
    if not options.get(b"boundary"):
        raise _malformed("its Content-Type names no boundary")
    reader = FormReader(options[b"boundary"], spool, stack)
    async for piece in pieces(request, max_bytes + FORM_BYTES):
        await run_in_threadpool(reader.write, piece)
    return reader.finish()


async def receive_raw(request: Request, filename: str, spool: Spool, stack: ExitStack, max_bytes: int) -> Upload:
    """The one file that is the body of a request.

    Raises:
        ProblemError: 400, it is empty; 413, it is too large.
        ClientDisconnect: the caller has gone.
    """
    upload = Upload(filename, stack.enter_context(await run_in_threadpool(spool.open, filename)))
    async for piece in pieces(request, max_bytes):
        await run_in_threadpool(upload.write, piece)
    if not upload.size:
        raise ProblemError(400, "empty_body", "the request has no body", "send the file as body or in a form")
    return upload


def _malformed(why: str) -> ProblemError:
    return ProblemError(400, "malformed_form", f"the form cannot be read: {why}", "send multipart/form-data")
