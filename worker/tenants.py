"""Names of tenants, as callers, keys, settings and commands give them."""

from __future__ import annotations

from pipelines.errors import PermanentError

MOST_CHARACTERS = 200


def check_tenant(name: str) -> str:
    """The name, if a tenant may have it.

    Raises:
        PermanentError: `invalid_tenant`: it is empty, too long, or holds what cannot be printed.
    """
    if not 1 <= len(name) <= MOST_CHARACTERS or not name.isprintable() or name != name.strip():
        raise PermanentError(
            "invalid_tenant",
            f"the name of a tenant is 1 to {MOST_CHARACTERS} printable characters, without space around it",
            "name the tenant as its documents name it, e.g. acme",
        )
    return name
