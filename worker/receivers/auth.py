"""API keys: who may come in, and for what.

A key is looked up by its SHA-256, which is all that is stored, so no comparison takes longer the more of it is right.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from fastapi import Depends, Header
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer
from psycopg import Connection
from psycopg.errors import UniqueViolation
from psycopg.rows import class_row
from starlette.requests import Request

from pipelines.errors import PermanentError
from worker.receivers.context import Shared
from worker.receivers.problems import ProblemError
from worker.settings import Settings
from worker.tenants import MOST_CHARACTERS, check_tenant

Scope = Literal["ingest", "search", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

KEY_PREFIX = "gm_"
MOST_KEY_LENGTH = 512
TENANT_HEADER = "X-Tenant"
TENANT_HELP = "For whom to act, with a key that is bound to no tenant; left out, for GRISTMILL_TENANT"

_COLUMNS = "name, scopes, created_at, last_used_at, tenant"

_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key, as bearer token")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="X-API-Key", description="An API key")
_supabase = APIKeyHeader(name="apikey", auto_error=False, scheme_name="apikey", description="As Supabase clients do")


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of an API key; never the key itself.

    Attributes:
        tenant: the only one that it is good for; None: any.
    """

    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the name of the key, or None where none is demanded.

    Attributes:
        tenant: for whom alone this request reads and writes.
        bound: the key is good for this tenant only; what concerns the whole installation is not for this caller to see.
        admin: may do everything to what is this tenant's.
    """

    name: str | None
    tenant: str
    bound: bool = False
    admin: bool = False


# --- keys ------------------------------------------------------------------------------------------------------


def create_key(connection: Connection[Any], name: str, scopes: Iterable[str], tenant: str | None = None) -> str:
    """Make a key and return it: the only time that it can be seen.

    Args:
        tenant: the only one that it is good for; None: any.

    Raises:
        PermanentError: the name is empty or taken, a scope is not known, or no tenant has such a name.
    """
    wanted = sorted(set(scopes))
    if not wanted or not set(wanted) <= set(SCOPES):
        raise PermanentError(
            "invalid_scope", f"the scopes are {', '.join(wanted) or 'none'}", f"use one or more of {', '.join(SCOPES)}"
        )
    if not name.strip() or not name.isprintable():
        raise PermanentError("invalid_name", "a key needs a name", "name it after whoever will use it")
    if tenant is not None:
        check_tenant(tenant)
    key = KEY_PREFIX + secrets.token_urlsafe(24)
    try:
        connection.execute(
            "insert into api_keys (name, key_hash, scopes, tenant) values (%s, %s, %s, %s)",
            (name, _hash(key), wanted, tenant),
        )
    except UniqueViolation as error:
        raise PermanentError(
            "name_taken",
            f"there is a key named {name} already",
            f"choose another name, or: gristmill keys revoke {name}",
        ) from error
    return key


def list_keys(connection: Connection[Any]) -> list[Key]:
    """All keys, by name."""
    with connection.cursor(row_factory=class_row(Key)) as cursor:
        return cursor.execute(f"select {_COLUMNS} from api_keys order by name").fetchall()


def revoke_key(connection: Connection[Any], name: str) -> bool:
    """Make a key invalid from now on. False if there is none of this name."""
    return connection.execute("delete from api_keys where name = %s", (name,)).rowcount == 1


def find_key(connection: Connection[Any], key: str) -> Key | None:
    """The key that this is; None if it is not one of ours. Notes its use, to the minute."""
    with connection.cursor(row_factory=class_row(Key)) as cursor:
        found = cursor.execute(f"select {_COLUMNS} from api_keys where key_hash = %s", (_hash(key),)).fetchone()
    if found:
        connection.execute(
            "update api_keys set last_used_at = now()"
            " where name = %s and coalesce(last_used_at < now() - interval '1 minute', true)",
            (found.name,),
        )
    return found


# --- requests --------------------------------------------------------------------------------------------------


def require(scope: Scope) -> Callable[..., Caller]:
    """A FastAPI dependency that lets only callers with a key of this scope (or `admin`) through.

    The key may come as `Authorization: Bearer`, `X-API-Key` or `apikey`. None is demanded where the settings say so
    or, by default, from a program on the machine of a service that listens on loopback only.

    The caller acts for the tenant of the key; with a key that has none, or none at all, for that of the header
    `X-Tenant`, else for that of the settings. A key with a tenant counts where none is demanded as well: what was meant
    for its tenant must not end up with another.

    Answers:
        401 without a valid key, 403 with one that lacks the scope or is another tenant's, 400 where `X-Tenant` names
        none.
    """

    def authorised(
        request: Request,
        context: Shared,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
        header: Annotated[str | None, Depends(_header)],
        supabase: Annotated[str | None, Depends(_supabase)],
        _tenant: Annotated[str | None, Header(alias=TENANT_HEADER, description=TENANT_HELP)] = None,
    ) -> Caller:
        given = [key for key in (bearer and bearer.credentials, header, supabase) if key]
        demanded = key_demanded(context.settings, request)
        if demanded and not given:
            raise _unauthorised("no_key", "this needs an API key and none was sent")
        keys: list[Key] = []
        if given:  # supabase-js sends two headers, which need not hold the same thing
            with context.connection() as connection:
                keys = [found for key in dict.fromkeys(given) if (found := _found(connection, key))]
        if not demanded:
            keys = [key for key in keys if key.tenant is not None]
            if not keys:
                return Caller(None, _asked_tenant(request) or context.settings.tenant, admin=True)
        if not keys:
            raise _unauthorised("wrong_key", "the API key is not valid")
        for key in keys:
            if scope in key.scopes or "admin" in key.scopes:
                tenant = _tenant_of(key, _asked_tenant(request), context.settings)
                return Caller(key.name, tenant, bound=key.tenant is not None, admin="admin" in key.scopes)
        raise ProblemError(
            403,
            "scope_missing",
            f"the API key {keys[0].name} may not do this: it lacks the scope {scope}",
            f"make another: gristmill keys add NAME --scope {scope}",
        )

    return authorised


def key_demanded(settings: Settings, request: Request) -> bool:
    """Whether a request needs a key.

    With `auto`, a service on loopback demands none from programs of its own machine. A web page that a browser of
    this machine shows is not one of them: it betrays itself by its Origin or, after DNS rebinding, by its Host.
    """
    if settings.require_key != "auto":
        return settings.require_key == "always"
    origin = request.headers.get("origin")
    names = [settings.http_host, _host(f"//{request.headers.get('host', '')}")]
    if origin:
        names.append(_host(origin))
    return not all(is_loopback(name) for name in names)


def is_loopback(host: str) -> bool:
    """Whether a host, as written in settings or headers, can only be this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _asked_tenant(request: Request) -> str | None:
    """What `X-Tenant` says; None where it is not there.

    Raises:
        ProblemError: 400, it comes twice, is not UTF-8, or is no name of a tenant.
    """
    given = request.headers.getlist(TENANT_HEADER)
    if not given:
        return None
    try:
        if len(given) == 1:
            return check_tenant(given[0].encode("latin-1").decode())
    except (PermanentError, UnicodeDecodeError) as error:
        raise _no_tenant() from error
    raise _no_tenant()


def _tenant_of(key: Key, asked: str | None, settings: Settings) -> str:
    if key.tenant is None:
        return asked or settings.tenant
    if asked in (None, key.tenant):
        return key.tenant
    raise ProblemError(
        403,
        "wrong_tenant",
        f"the API key {key.name} is not good for the tenant that {TENANT_HEADER} names",
        f"leave {TENANT_HEADER} out, or use a key of that tenant",
    )


def _no_tenant() -> ProblemError:
    return ProblemError(
        400,
        "invalid_tenant",
        f"{TENANT_HEADER} is 1 to {MOST_CHARACTERS} printable characters in UTF-8, given once",
        "name the tenant as its documents name it, or leave the header out",
    )


def _found(connection: Connection[Any], key: str) -> Key | None:
    return find_key(connection, key) if len(key) <= MOST_KEY_LENGTH else None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _unauthorised(code: str, detail: str) -> ProblemError:
    return ProblemError(
        401,
        code,
        detail,
        "send one as Authorization: Bearer or X-API-Key; make one with: gristmill keys add NAME --scope SCOPE",
        headers={"WWW-Authenticate": 'Bearer realm="gristmill"'},
    )
