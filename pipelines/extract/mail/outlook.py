"""Outlook messages (`.msg`) as Internet messages, those attached to them too."""

from __future__ import annotations

import codecs
import email.utils
from dataclasses import replace
from email.mime.application import MIMEApplication
from email.mime.base import MIMEBase
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from pathlib import Path

import olefile
from oxmsg import Message
from oxmsg.attachment import Attachment
from oxmsg.storage import Storage, Stream

_ATTACHED_MESSAGE = "__substg1.0_3701000D"
_MARKUP_BYTES = "__substg1.0_1013001E"
_PROPERTIES = "__properties_version1.0"
_SHORT_NAME, _CONTENT_ID, _RECIPIENT_KIND = 0x3704, 0x3712, 0x0C15
_COPY = 2
_DEEPEST = 8


def _code_page(name: str) -> codecs.CodecInfo | None:
    """The codec of a code page by the name that `oxmsg` gives it (`windows-950`), which Python does not know."""
    number = name.replace("-", "_").removeprefix("windows_")
    return codecs.lookup({"936": "gb18030"}.get(number, f"cp{number}")) if number != name and number.isdigit() else None


codecs.register(_code_page)


def load_outlook(path: Path) -> MIMEMultipart:
    """An Outlook message with its attachments as an Internet message.

    Raises:
        ValueError, KeyError, OSError: it is damaged.
    """
    with olefile.OleFileIO(str(path)) as file:
        return _as_email(Storage.from_ole(file), 0)


def _as_email(storage: Storage, depth: int) -> MIMEMultipart:
    message = Message(storage)
    made = MIMEMultipart("mixed")
    headers = {name.lower(): value for name, value in message.message_headers.items()}
    if (kind := headers.get("content-type", "")) and ("encrypted" in kind or "pkcs7-mime" in kind):
        made.replace_header("Content-Type", " ".join(kind.split()))
    sent = message.sent_date
    for name, value in {
        "Subject": message.subject,
        "From": message.sender,
        "To": headers.get("to") or _recipients(message, copies=False),
        "Cc": headers.get("cc") or _recipients(message, copies=True),
        "Date": headers.get("date") or (email.utils.format_datetime(sent) if sent else None),
        "Message-ID": headers.get("message-id"),
    }.items():
        if value:
            made[name] = " ".join(value.split())
    text, markup = message.body, _markup(message, storage)
    alternatives = MIMEMultipart("alternative")
    for content, subtype in ((text, "plain"), (markup, "html")):
        if content:
            alternatives.attach(MIMEText(content.replace("\0", ""), subtype, "utf-8"))
    made.attach(alternatives)
    for one in storage.iter_attachment_storages():
        if part := _attached(one, depth):
            made.attach(part)
    return made


def _attached(storage: Storage, depth: int) -> MIMEBase | None:
    attachment = Attachment(storage)
    inner = next((one for one in storage.storages if one.name == _ATTACHED_MESSAGE), None)
    if inner is not None:
        if depth >= _DEEPEST or not any(stream.name == _PROPERTIES for stream in inner.streams):
            return None
        part = MIMEBase("message", "rfc822")
        part.attach(_as_email(_standing_alone(inner), depth + 1))
        return part
    content = attachment.file_bytes
    if not content:
        return None
    properties = attachment.properties
    name = attachment.file_name or properties.str_prop_value(_SHORT_NAME) or "attachment"
    main, _, sub = (attachment.mime_type or "application/octet-stream").partition("/")
    part = MIMEApplication(content)
    if main == "image" and sub:
        part.replace_header("Content-Type", f"image/{sub}")
    part.add_header("Content-Disposition", "attachment", filename=("utf-8", "", name))
    if identity := properties.str_prop_value(_CONTENT_ID):
        part["Content-ID"] = f"<{identity}>"
    return part


def _standing_alone(storage: Storage) -> Storage:
    """An attached message's storage as that of a message file, whose property header is 8 bytes longer."""
    streams = tuple(
        Stream(one.path, one.bytes_[:24] + bytes(8) + one.bytes_[24:]) if one.name == _PROPERTIES else one
        for one in storage.streams
    )
    return replace(storage, streams=streams)


def _markup(message: Message, storage: Storage) -> str | None:
    try:
        # As a string of bytes it is in the body's character set, which `oxmsg` knows of the plain body only.
        for stream in storage.streams:
            if stream.name == _MARKUP_BYTES:
                return stream.bytes_.decode(message.properties.body_encoding)
        return message.html_body
    except (UnicodeDecodeError, LookupError, KeyError):
        return None


def _recipients(message: Message, *, copies: bool) -> str:
    found = [one for one in message.recipients if (one.properties.int_prop_value(_RECIPIENT_KIND) == _COPY) == copies]
    return ", ".join(
        email.utils.formataddr((one.name if one.name != one.email_address else "", one.email_address), "utf-8")
        for one in found
    )
