"""What a named webhook receiver of the settings is: who may call it, and where in its JSON the document is."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from pipelines.errors import ConfigurationError, PermanentError
from worker.receivers.json_path import MISSING, JsonPath
from worker.receivers.signatures import Form, signer
from worker.settings import Settings
from worker.tenants import check_tenant

MAX_BYTES = 2**20
REMEDY = "correct GRISTMILL_WEBHOOKS; docs/settings.md lists every setting"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def _path(value: Any) -> JsonPath:
    if not isinstance(value, str):
        raise ValueError("should be a JSON path, e.g. $.page.url")
    return JsonPath.parse(value)


def _path_or_constant(value: Any) -> Any:
    """Text that begins with $ is a path; with $$, text that begins with $; all else means itself."""
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    return value[1:] if value.startswith("$$") else JsonPath.parse(value)


def _tenant(value: str) -> str:
    try:
        return check_tenant(value)
    except PermanentError as error:
        raise ValueError(error.cause) from error


Path = Annotated[JsonPath, BeforeValidator(_path)]
Value = Annotated[Any, BeforeValidator(_path_or_constant)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)


class Condition(_Frozen):
    """Holds where the value at `path` is `equals`, or one of them if that is a list."""

    path: Path
    equals: Any

    def holds(self, payload: Any) -> bool:
        """Whether it does for this delivery."""
        found = self.path.find(payload)
        wanted = self.equals if isinstance(self.equals, list) else [self.equals]
        return any(type(found) is type(one) and found == one for one in wanted)


class Receiver(_Frozen):
    """One receiver of `POST /webhooks/{name}`.

    Exactly one of `url`, `text` and `file` says where the document is, or `sync` which sync the delivery is a push to:
    its connector reads what it tells of, and those documents are visited soon. Paths are those of
    `worker.receivers.json_path`; where a path or a constant may stand, text that begins with $ is a path.
    """

    auth: Form
    secret: SecretStr | None = Field(None, description="Shared with the sender; Notion's comes with its handshake")
    header: str = Field("X-Webhook-Secret", description="With auth `header`: the one that holds the secret")
    url: Path | None = Field(None, description="Address to fetch")
    text: Path | None = Field(None, description="Text to index")
    file: Path | None = Field(None, description="File in Base64")
    sync: str | None = Field(None, description="One of GRISTMILL_SYNCS, whose documents the deliveries tell of")
    tenant: Annotated[str, AfterValidator(_tenant)] | None = Field(
        None, description="Whose the documents are; unset: GRISTMILL_TENANT"
    )
    uri: Path | None = Field(None, description="Identity; default: the url, else the hash of the content")
    filename: Value = Field(None, description="Its suffix hints at the format of text or file")
    title: Value = Field(None, description="Shown with the answers")
    language: Value = Field(None, description="Text search configuration; unset: detected")
    metadata: dict[str, Value] = Field(default_factory=dict, description="Put on every chunk")
    delivery: Path | None = Field(None, description="What the sender calls the delivery, where no header says it")
    when: Condition | None = Field(None, description="Others are acknowledged and ignored")
    delete_when: Condition | None = Field(None, description="The document is deleted instead")
    max_bytes: int = Field(MAX_BYTES, ge=1, le=32 * 2**20, description="Largest delivery, in bytes")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sum(one is not None for one in (self.url, self.text, self.file, self.sync)) != 1:
            raise ValueError("exactly one of url, text, file and sync must say where the document is")
        about = (self.uri, self.filename, self.title, self.language, self.metadata or None, self.delete_when)
        if self.sync is not None and any(one is not None for one in about):
            raise ValueError("with sync, its connector says what the document is: leave out all that tells of it")
        if self.sync is not None and self.tenant is not None:
            raise ValueError("with sync, the documents are of GRISTMILL_TENANT: leave tenant out")
        if self.delete_when and not (self.uri or self.url):
            raise ValueError("delete_when needs uri, to say which document")
        if not _HEADER.fullmatch(self.header):
            raise ValueError("header is not the name of one")
        secret = self.secret.get_secret_value() if self.secret else None
        if secret is None and self.auth == "notion":
            return self
        if secret is None or len(secret) < 8:
            raise ValueError("secret must have 8 characters at least")
        if self.auth == "standard":
            signer(secret)
        if self.auth in ("bearer", "header") and not (secret.isascii() and secret.isprintable() and " " not in secret):
            raise ValueError("a secret that is sent in a header is visible ASCII without spaces")
        return self

    @property
    def kind(self) -> Literal["url", "text", "file", "sync"]:
        """Which of the four says where the document is."""
        return "url" if self.url else "text" if self.text else "file" if self.file else "sync"

    @property
    def content(self) -> JsonPath:
        """Where the document is in a delivery; not with `sync`."""
        path = self.url or self.text or self.file
        assert path is not None
        return path


def value_of(value: Any, payload: Any) -> Any:
    """A constant, or what is at a path; None where there is nothing."""
    if not isinstance(value, JsonPath):
        return value
    found = value.find(payload)
    return None if found is MISSING else found


def load_receivers(settings: Settings) -> dict[str, Receiver]:
    """The receivers of the settings, by name.

    Raises:
        ConfigurationError: `invalid_webhook`, naming receiver and field, never the secret.
    """
    found: dict[str, Receiver] = {}
    for name, value in settings.webhooks.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                "invalid_webhook", f"the webhook name {name!r} has other characters than A-Z a-z 0-9 _ -", REMEDY
            )
        try:
            found[name] = Receiver.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            said = first["msg"].removeprefix("Value error, ")
            raise ConfigurationError(
                "invalid_webhook", f"webhook {name}: {where + ': ' if where else ''}{said}", REMEDY
            ) from error
        sync = found[name].sync
        if sync is not None and sync not in settings.syncs:
            names = ", ".join(sorted(settings.syncs)) or "none"
            raise ConfigurationError(
                "invalid_webhook", f"webhook {name}: there is no sync {sync!r}; there are: {names}", REMEDY
            )
    return found
