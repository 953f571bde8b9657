"""Proof that a webhook delivery comes from who shares its secret, in the forms that senders use.

Everything is compared in constant time and as bytes. Whatever a stranger sends, malformed or not, is refused with
one kind of error.

Sources: Standard Webhooks (standardwebhooks.com), GitHub's "Validating webhook deliveries", Notion's "Webhooks".
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from standardwebhooks import Webhook

Form = Literal["bearer", "header", "standard", "github", "notion"]
FORMS: tuple[Form, ...] = get_args(Form)

_HEX = re.compile(r"sha256=([0-9a-fA-F]{64})")


class RefusedError(Exception):
    """The delivery proves nothing; the message says why, for our log and not for the sender."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a delivery that was let in can be known by when it comes again.

    Attributes:
        id: what its sender calls it; None where it does not say.
        digest: SHA-256 of all that the signature covers, so that nobody but the holder of the secret can make the
            same delivery look new; None where nothing is signed and there is no id.
    """

    id: str | None
    digest: bytes | None


def verify(form: Form, secret: str, headers: Mapping[str, str], body: bytes, *, header: str) -> Proof:
    """Check a delivery.

    Args:
        headers: names in any case, values decoded as Latin-1, as ASGI servers give them.
        header: for the form `header`: the name of the one that holds the secret.

    Raises:
        RefusedError: the proof is missing, malformed, wrong, or (form `standard`) five minutes off.
    """
    given = {name.lower(): value for name, value in headers.items()}
    match form:
        case "bearer":
            scheme, _, token = given.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not _same(token.strip(), secret):
                raise RefusedError("no or another bearer token")
            return _unsigned(given, body)
        case "header":
            if not _same(given.get(header.lower(), ""), secret):
                raise RefusedError("no or another secret in the header")
            return _unsigned(given, body)
        case "standard":
            return _standard(secret, given, body)
        case "github":
            _hexadecimal(secret, given.get("x-hub-signature-256"), body)
            return Proof(given.get("x-github-delivery"), hashlib.sha256(body).digest())
        case "notion":
            _hexadecimal(secret, given.get("x-notion-signature"), body)
            return Proof(None, hashlib.sha256(body).digest())


def signer(secret: str) -> Webhook:
    """Standard Webhooks with this secret: `whsec_` and Base64, the prefix may be left out.

    Raises:
        ValueError: the secret is not of that form.
    """
    text = secret.removeprefix("whsec_").rstrip("=")
    if not re.fullmatch(r"[A-Za-z0-9+/]{22,}", text) or len(text) % 4 == 1:
        raise ValueError("a secret of Standard Webhooks is whsec_ and at least 16 bytes in Base64")
    return Webhook(secret)


def _standard(secret: str, given: Mapping[str, str], body: bytes) -> Proof:
    try:
        # It lets through errors of decoding what strangers send, besides its own.
        signer(secret).verify(body, dict(given), json_parse=False)
        name, seconds = given["webhook-id"], math.floor(float(given["webhook-timestamp"]))
        signed = f"{name}.{seconds}.".encode() + body
    except Exception as error:
        raise RefusedError(f"not signed as Standard Webhooks has it: {type(error).__name__}") from error
    return Proof(name, hashlib.sha256(signed).digest())


def _hexadecimal(secret: str, signature: str | None, body: bytes) -> None:
    found = _HEX.fullmatch(signature or "")
    if found is None:
        raise RefusedError("no signature of the form sha256=<64 hexadecimal digits>")
    expected = hmac.new(secret.encode("utf-8"), body, hashlib.sha256).digest()
    if not hmac.compare_digest(expected, bytes.fromhex(found[1])):
        raise RefusedError("signed with another secret, or changed on the way")


def _unsigned(given: Mapping[str, str], body: bytes) -> Proof:
    name = given.get("webhook-id") or given.get("idempotency-key")
    return Proof(name, hashlib.sha256(body).digest() if name else None)


def _same(given: str, secret: str) -> bool:
    """Equal as bytes; hashed first, so that not even the length shows in the time."""
    known = hashlib.sha256(secret.encode("utf-8")).digest()
    return hmac.compare_digest(hashlib.sha256(given.encode("latin-1", "replace")).digest(), known)
