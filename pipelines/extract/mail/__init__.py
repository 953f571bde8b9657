"""E-mail: `.eml`, Outlook `.msg` and mailboxes (mbox); bodies as blocks, attached files as documents of their own."""

from __future__ import annotations

import codecs
import email
import email.header
import email.utils
import mailbox
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from typing import Any

from pipelines.charset import decode
from pipelines.errors import PermanentError
from pipelines.extract.attachments import Attachments
from pipelines.extract.html import read_html, read_whole
from pipelines.extract.job import Job
from pipelines.extract.plain import paragraphs
from pipelines.types import Block, Extracted

MAX_MESSAGES = 2_000
MAX_NESTING = 50  # of parts in parts
_TOO_DEEP = "application/x-too-deep"
_HEADERS = {"From": "author", "To": "to", "Cc": "cc", "Date": "date", "Message-ID": "message_id"}
_SIGNATURES = frozenset({"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"})
_REFERENCE = re.compile(rb"cid:([^\"'\s>)]+)", re.IGNORECASE)


def extract_eml(job: Job) -> Extracted:
    """The body of a message; its subject as title and heading, the other headers as metadata.

    Raises:
        PermanentError: `encrypted`, where the message is (PGP or S/MIME).
    """
    # What precedes the first header would make the whole message a body.
    content = _narrow(job.path.read_bytes()).removeprefix(codecs.BOM_UTF8).lstrip()
    return read_message(job, _parsed(content))


def extract_msg(job: Job) -> Extracted:
    """The same for an Outlook message."""
    from pipelines.extract.mail.outlook import load_outlook

    return read_message(job, load_outlook(job.path))


def extract_mbox(job: Job) -> Extracted:
    """The messages of a mailbox, each below a heading with its subject, as far as `MAX_MESSAGES` goes.

    Encrypted messages are named in the warnings and left out.
    """
    blocks: list[Block] = []
    warnings: list[str] = []
    box = mailbox.mbox(job.path, create=False)
    try:
        count = len(box)
        for number, key in enumerate(box.keys()[:MAX_MESSAGES], 1):
            try:
                one = read_message(job, _parsed(box.get_bytes(key)))
            except PermanentError as error:
                warnings.append(f"message {number} was left out: {error.cause}")
                continue
            facts = one.metadata
            lines = [f"{name}: {facts[key]}" for name, key in _HEADERS.items() if key in facts and key != "message_id"]
            blocks.append(Block("heading", one.title or "(no subject)", level=2))
            blocks.append(Block("paragraph", "\n".join(lines)))
            body = one.blocks[1:] if one.title else one.blocks
            blocks += map(_lower, body)
    finally:
        box.close()
    if count > MAX_MESSAGES:
        warnings.append(f"{count - MAX_MESSAGES} of {count} messages were left out")
    return Extracted(job.mime, None, tuple(blocks), metadata={"messages": count, "warnings": warnings})


class _Part(Message):
    """A message, or a part of one, that takes no parts below `MAX_NESTING`: there it is one text without a reader.

    The parser of the standard library calls itself for each part in a part, and takes every line through all levels.
    """

    nesting = 0

    def attach(self, payload: Any) -> None:
        payload.nesting = self.nesting + 1
        super().attach(payload)

    def get_content_type(self) -> str:
        kind = super().get_content_type()
        return _TOO_DEEP if self.nesting >= MAX_NESTING and kind.startswith(("multipart/", "message/")) else kind


def _narrow(content: bytes) -> bytes:
    """A message that an editor saved in UTF-16 in UTF-8; any other as it is."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        wide = "utf-16"
    elif 0 in content[:2]:
        wide = "utf-16-le" if content[0] else "utf-16-be"
    else:
        return content
    return content.decode(wide, "replace").encode()


def _parsed(content: bytes) -> Message:
    return email.message_from_bytes(content, _Part)


def read_message(job: Job, message: Message) -> Extracted:
    """Read a parsed message; its attachments go to those of the job."""
    content_type = str(message.get("Content-Type", "")).lower()
    if "multipart/encrypted" in content_type or ("pkcs7-mime" in content_type and "signed-data" not in content_type):
        raise PermanentError(
            "encrypted", "the message is encrypted", "decrypt it in the mail program and save it again"
        )
    facts: dict[str, Any] = {key: header(message, name) for name, key in _HEADERS.items() if message.get(name)}
    if "date" in facts:
        facts["date"] = _iso_date(facts["date"])
    if "message_id" in facts:
        facts["message_id"] = facts["message_id"].strip("<> ")
    subject = header(message, "Subject")
    before = len(job.attachments.found)
    body = _Body(job.attachments, saved_page=message.get("To") is None and _is_saved_page(message))
    body.take(message)
    blocks = [_lower(block) for block in body.blocks()]
    if names := [one.name for one in job.attachments.found[before:]]:
        blocks.append(Block("paragraph", f"Attachments: {', '.join(names)}"))
    if subject:
        blocks.insert(0, Block("heading", subject, level=1))
    return Extracted(job.mime, subject or None, tuple(blocks), metadata=facts)


def _lower(block: Block) -> Block:
    """A heading one level down, to stand below another; any other block as it is."""
    return replace(block, level=min(block.level + 1, 6)) if block.level else block


def header(message: Message, name: str) -> str:
    """A header as text: encoded words decoded (RFC 2047), raw bytes of any character set too, on one line."""
    return decoded(message.get(name, ""))


def decoded(value: Any) -> str:
    """A header value, or a file name in one, as text."""
    pieces = []
    try:
        parts = email.header.decode_header(value)
    except (email.errors.HeaderParseError, ValueError):
        parts = [(str(value), None)]
    for part, charset in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        try:
            pieces.append(decode(content, charset)[0])
        except PermanentError:
            pieces.append(content.decode("ascii", "replace"))
    return " ".join("".join(pieces).split())


@dataclass(slots=True)
class _Body:
    """The text parts of a message, in order, while its other parts go to the attachments."""

    attachments: Attachments
    saved_page: bool = False
    texts: list[Message] = field(default_factory=list)
    pictures: list[Message] = field(default_factory=list)

    def blocks(self) -> Iterator[Block]:
        shown = b""
        for part in self.texts:
            content = _bytes(part)
            shown += content
            text = _text(content, part.get_content_charset())
            if part.get_content_type() != "text/html":
                yield from paragraphs(text)
            elif self.saved_page:
                yield from read_html(text)[1]
            else:
                yield from read_whole(text)
        # What the text shows in place belongs to its looks; other pictures were sent for themselves.
        shown_in_place = {reference.decode("ascii", "replace") for reference in _REFERENCE.findall(shown)}
        for picture in self.pictures:
            if str(picture.get("Content-ID", "")).strip("<> ") not in shown_in_place:
                self._attach(picture)

    def take(self, part: Message) -> None:
        kind = part.get_content_type()
        name, disposition = _name(part), part.get_content_disposition()
        if kind == "message/rfc822":
            self._attach_message(part, name)
        elif kind == "message/delivery-status" or (part.is_multipart() and not kind.startswith("multipart/")):
            for inner in _parts(part):
                self.texts.append(inner)
        elif kind == "multipart/alternative":
            self._take_alternative(part)
        elif part.is_multipart():
            for inner in _parts(part):
                self.take(inner)
        elif kind == _TOO_DEEP:
            self.attachments.warnings.append(f"parts more than {MAX_NESTING} deep in each other were left out")
        elif kind in _SIGNATURES:
            return
        elif kind.startswith("image/") and (part.get("Content-ID") or disposition != "attachment"):
            if name or disposition == "attachment":
                self.pictures.append(part)
        elif name or disposition == "attachment" or not kind.startswith("text/"):
            self._attach(part)
        elif kind in {"text/plain", "text/html"}:
            self.texts.append(part)

    def _take_alternative(self, part: Message) -> None:
        """HTML, as mail programs show it, unless the plain alternative says more; never the calendar's."""
        inner = _parts(part)
        kinds = [_holds(one) for one in inner]
        chosen = next((index for index in reversed(range(len(inner))) if kinds[index] == "text/html"), None)
        plain = next((index for index, kind in enumerate(kinds) if kind == "text/plain"), None)
        if chosen is not None and plain is not None and not _says_anything(inner[chosen]):
            chosen = plain
        for index, one in enumerate(inner):
            other = kinds[index] not in {"text/plain", "text/html"} and (_name(one) or one.is_multipart())
            if other or index == (plain if chosen is None else chosen):
                self.take(one)

    def _attach(self, part: Message) -> None:
        name = _name(part)
        if not name:
            name = "attachment" + (mimetypes.guess_extension(part.get_content_type()) or "")
        self.attachments.add(name, _bytes(part))

    def _attach_message(self, part: Message, name: str) -> None:
        for inner in _parts(part):
            subject = header(inner, "Subject")
            own = name if name.lower().endswith(".eml") else f"{subject or name or 'message'}.eml"
            try:
                self.attachments.add(own, inner.as_bytes())
            except (ValueError, TypeError, LookupError) as error:
                self.attachments.warnings.append(f"the attached message {own} is damaged and was left out: {error}")


def _parts(part: Message) -> list[Message]:
    payload = part.get_payload() if part.is_multipart() else ()
    return [one for one in payload if isinstance(one, Message)]


def _holds(part: Message) -> str:
    """The kind of text a part is or begins with."""
    inner = _parts(part)
    return _holds(inner[0]) if part.is_multipart() and inner else part.get_content_type()


def _is_saved_page(message: Message) -> bool:
    """Whether a browser saved a web page as this (MHTML, RFC 2557)."""
    parts = _parts(message)
    places = (message.get("Snapshot-Content-Location"), parts[0].get("Content-Location") if parts else None)
    return any(str(place or "").startswith("http") for place in places)


def _says_anything(part: Message) -> bool:
    first = part
    while first.is_multipart() and _parts(first):
        first = _parts(first)[0]
    return bool(read_whole(_text(_bytes(first), first.get_content_charset())))


def _bytes(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    if isinstance(payload, bytes):
        return payload
    # Delivery reports hold headers only.
    return "\n".join(f"{name}: {value}" for name, value in part.items()).encode("utf-8", "surrogateescape")


def _text(content: bytes, charset: str | None) -> str:
    try:
        return decode(content, charset)[0].replace("\r\n", "\n").replace("\r", "\n")
    except PermanentError:
        return ""


def _name(part: Message) -> str:
    try:
        return decoded(part.get_filename() or "")
    except (ValueError, TypeError, LookupError):
        return ""


def _iso_date(value: str) -> str:
    try:
        return email.utils.parsedate_to_datetime(value).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return value
