"""Who is let in by each form of signature; whatever else comes is refused, never an exception."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from worker.receivers.signatures import FORMS, Form, Proof, RefusedError, signer, verify

SECRET = "It's a Secret to Everybody"
BODY = b"Hello, World!"
GITHUB = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def standard_headers(
    body: bytes = BODY, *, id: str = "msg_1", ago: float = 0.0, secret: str = STANDARD
) -> dict[str, str]:
    when = datetime.now(UTC) - timedelta(seconds=ago)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(when.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, when, body.decode()),
    }


def good(form: Form) -> tuple[str, dict[str, str]]:
    """A secret and headers that pass."""
    signed = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    return {
        "bearer": ("s3cret-token", {"Authorization": "Bearer s3cret-token"}),
        "header": ("s3cret-token", {"X-Webhook-Secret": "s3cret-token"}),
        "standard": (STANDARD, standard_headers()),
        "github": (SECRET, {"X-Hub-Signature-256": f"sha256={signed}", "X-GitHub-Delivery": "72d3162e"}),
        "notion": (SECRET, {"X-Notion-Signature": f"sha256={signed}"}),
    }[form]


def check(form: Form, secret: str, headers: dict[str, str], body: bytes = BODY) -> Proof:
    return verify(form, secret, headers, body, header="X-Webhook-Secret")


def test_the_vector_of_github() -> None:
    assert good("github")[1]["X-Hub-Signature-256"] == f"sha256={GITHUB}"
    proof = check("github", SECRET, {"x-hub-signature-256": f"sha256={GITHUB}"})
    assert proof == Proof(None, hashlib.sha256(BODY).digest())


def test_the_vector_of_standard_webhooks() -> None:
    """From the specification's own tests: the timestamp is long ago, so it is the signature that is compared."""
    when = datetime.fromtimestamp(1614265330, UTC)
    assert Webhook(STANDARD).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", when, '{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("form", FORMS)
def test_let_in(form: Form) -> None:
    secret, headers = good(form)
    for spelling in (headers, {key.lower(): value for key, value in headers.items()}):
        assert check(form, secret, spelling)


@pytest.mark.parametrize("form", FORMS)
def test_another_secret(form: Form) -> None:
    _, headers = good(form)
    other = "whsec_" + base64.b64encode(b"another secret of 24 byte").decode()
    with pytest.raises(RefusedError):
        check(form, other, headers)


@pytest.mark.parametrize("form", FORMS)
def test_the_time_that_comparing_takes_tells_nothing(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to the one function that promises that, whoever compares: we, or the library."""
    compared: list[bytes] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.extend((one, other))
        return one == other

    secret, headers = good(form)
    monkeypatch.setattr(hmac, "compare_digest", noted)
    assert check(form, secret, headers)
    assert [len(one) for one in compared] == [32, 32]


@pytest.mark.parametrize("form", ["standard", "github", "notion"])
def test_another_body(form: Form) -> None:
    secret, headers = good(form)
    with pytest.raises(RefusedError):
        check(form, secret, headers, BODY + b" ")


MALFORMED = [
    "",
    " ",
    ",",
    "v1",
    "v1,",
    "v1,a",
    "v1,====",
    "v1,é",
    "v1,a,b",
    "sha256",
    "sha256=",
    "sha256=zz",
    "sha1=" + GITHUB,
    "sha256=" + GITHUB[:-1],
    "sha256=" + GITHUB + "0",
    "sha256=" + GITHUB + "\n",
    "sha256=" + "é" * 64,
    "sha256=" + "٠" * 64,
    "SHA256=" + GITHUB,
    GITHUB,
    "Bearer",
    "Bearer ",
    "Bearer é",
    "Basic czNjcmV0LXRva2Vu",
    "s3cret-toke",
    "s3cret-token2",
    "S3CRET-TOKEN",
    "\x00",
    "\ud800",
    "NaN",
    "inf",
    "1e999",
    "-1",
    "9" * 400,
    "a" * 60_000,
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", MALFORMED)
def test_malformed(form: Form, text: str) -> None:
    """Each header in turn replaced, and left out, and the body not UTF-8."""
    secret, headers = good(form)
    for name in headers:
        if name == "X-GitHub-Delivery" or (name == "webhook-id" and not text):
            continue  # not part of the proof
        with pytest.raises(RefusedError):
            check(form, secret, {**headers, name: text})
        with pytest.raises(RefusedError):
            check(form, secret, {key: value for key, value in headers.items() if key != name})
    if form not in ("bearer", "header"):
        with pytest.raises(RefusedError):
            check(form, secret, headers, b"\xff\xfe\x00")


@given(
    form=st.sampled_from(FORMS),
    values=st.lists(st.text(max_size=40), min_size=4, max_size=4),
    body=st.binary(max_size=40),
)
def test_whatever_a_stranger_sends_is_refused(form: Form, values: list[str], body: bytes) -> None:
    secret, headers = good(form)
    names = [*headers, "webhook-id", "webhook-timestamp", "webhook-signature"]
    with pytest.raises(RefusedError):
        check(form, secret, dict(zip(names, values, strict=False)), body)


@pytest.mark.parametrize("ago", [310, 86_400, -310, -86_400])
def test_too_old_or_from_the_future(ago: float) -> None:
    with pytest.raises(RefusedError):
        check("standard", STANDARD, standard_headers(ago=ago))


@pytest.mark.parametrize("ago", [0, 280, -280])
def test_clocks_differ_a_little(ago: float) -> None:
    assert check("standard", STANDARD, standard_headers(ago=ago)).id == "msg_1"


def test_one_of_several_signatures_is_enough() -> None:
    """Senders sign with the old and the new secret while they change it."""
    headers = standard_headers()
    headers["webhook-signature"] = f"v1,{base64.b64encode(bytes(32)).decode()} v1a,abcd {headers['webhook-signature']}"
    assert check("standard", STANDARD, headers)


def test_the_digest_tells_a_retry_from_a_replay() -> None:
    headers = standard_headers(ago=5)
    first, replay, retry = (check("standard", STANDARD, each) for each in (headers, headers, standard_headers(ago=2)))
    assert first == replay
    assert first.id == retry.id
    assert first.digest != retry.digest


def test_another_spelling_of_the_timestamp_is_no_news() -> None:
    headers = standard_headers()
    respelt = {**headers, "webhook-timestamp": headers["webhook-timestamp"] + ".25"}
    assert check("standard", STANDARD, headers) == check("standard", STANDARD, respelt)


def test_githubs_id_is_not_signed_so_the_body_decides() -> None:
    secret, headers = good("github")
    one = check("github", secret, headers)
    two = check("github", secret, {**headers, "X-GitHub-Delivery": "made-up"})
    assert one.id != two.id
    assert one.digest == two.digest


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "short", "whsec_!!!!!!!!!!!!!!!!!!!!!!!!", "whsec_" + "A" * 21, "é" * 30]
)
def test_what_is_no_secret_of_standard_webhooks(secret: str) -> None:
    with pytest.raises(ValueError, match="Base64"):
        signer(secret)


def test_non_ascii_secrets_and_bodies_are_signed_as_utf_8() -> None:
    secret, body = "clé très secrète", "été".encode()
    signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    assert check("github", secret, {"X-Hub-Signature-256": f"sha256={signed}"}, body)
    text = '{"été": "\U0001f600"}'.encode()
    assert check("standard", STANDARD, standard_headers(text), text)
