"""Directories and accounts of the embedded services.

Postgres refuses to run as root. Started by root it runs as the account `postgres` if there is one, else
`nobody`; that account must reach the data, the socket and the programs. Nothing that we did not make
ourselves is ever opened for it: where the home or the installed package is closed to it, data and programs
go to `STATE_ROOT` instead.

The account may be shared with strangers (`nobody`), so root never writes in a directory that belongs to it:
there, a planted symbolic link could make root overwrite any file.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from pipelines.errors import ConfigurationError

STATE_ROOT = Path("/var/lib/gristmill")
"""Where root keeps what the server's account cannot reach elsewhere."""

SOCKET_PATH_BYTES = 103
"""Longest path of a Unix socket that every platform takes (with the final NUL: macOS 104, Linux 108)."""

_SHORT_ROOT = Path("/tmp")  # Not TMPDIR: each process must come to the same answer, whatever its environment.


class RunAs(TypedDict, total=False):
    """Arguments of `subprocess.Popen` that start a program under an account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """An account of the operating system."""

    name: str
    uid: int
    gid: int

    def run_as(self) -> RunAs:
        """Arguments of `subprocess.Popen` to run as this account; none if we are it already."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def account_of(uid: int) -> Account:
    """The account with this number.

    Raises:
        ConfigurationError: it has no name; neither Postgres nor its peer authentication works without one.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise ConfigurationError(
            "no_account",
            f"user number {uid} has no name on this machine, which Postgres needs",
            "run under a named account, or set GRISTMILL_DATABASE_URL",
        ) from error
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def server_account() -> Account:
    """The account a new embedded Postgres runs under: our own, or for root an unprivileged one.

    Raises:
        ConfigurationError: there is no such account.
    """
    if os.geteuid() != 0:
        return account_of(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "no_account",
        "Postgres cannot run as root, and there is neither an account postgres nor one called nobody",
        "start Gristmill as a plain user, or set GRISTMILL_DATABASE_URL",
    )


def _refused(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        "home_not_writable",
        f"{path} cannot be made: {error.strerror}",
        "set GRISTMILL_HOME to a directory that you may write in",
    )


def prepare_home(home: Path) -> None:
    """Make the home directory if there is none. One that exists keeps its mode.

    It is made 0700; for root 0711, since the account that Postgres runs under must pass through it to its own
    sub-directory. 0711 lets nobody list it, and all that is secret in it is closed by itself.

    Raises:
        ConfigurationError: it cannot be made.
    """
    try:
        home.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        if not home.is_dir():
            raise _refused(home, error) from error
        return
    except OSError as error:
        raise _refused(home, error) from error
    home.chmod(0o711 if os.geteuid() == 0 else 0o700)


def make_directory(path: Path, mode: int = 0o700, owner: Account | None = None, *, at_most: int | None = None) -> Path:
    """Make one directory with exactly this mode and owner (default: ours); one that exists is only checked.

    Args:
        path: the directory; what is above it exists.
        mode: its mode.
        owner: whose it is to be; only root may name someone else.
        at_most: the widest mode to accept of one that exists; default `mode`.

    Raises:
        ConfigurationError: it cannot be made; or it exists and is not a directory, belongs to another
            account or is open to more people than asked.
    """
    uid = owner.uid if owner else os.geteuid()
    try:
        path.mkdir(mode=0o700)
        if uid != os.geteuid() and owner:
            os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
        if mode != 0o700:
            path.chmod(mode)
    except FileExistsError:
        # Checked below, like one that was made just now.
        pass
    except OSError as error:
        raise _refused(path, error) from error
    limit = mode if at_most is None else at_most
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or stat.S_IMODE(found.st_mode) & 0o777 & ~limit:
        raise ConfigurationError(
            "unsafe_directory",
            f"{path} is not a directory of {owner.name if owner else 'yours'} with mode {limit:04o} or less",
            "find out what made it; move it away, then start again",
        )
    return path


def is_open_to(path: Path, account: Account) -> bool:
    """Whether an account may pass through `path` and everything above it, going by owner, group and mode.

    Access lists are not looked at. An answer that is wrong for that reason costs a copy, or shows when the
    server is started, with its own words.
    """
    if account.uid == 0:
        return True
    chain = {q for p in (path.absolute(), path.resolve()) for q in (p, *p.parents)}
    return all(_may(q, account, stat.S_IXOTH) for q in chain)


def _may(path: Path, account: Account, bits: int) -> bool:
    """Whether `account` has all of `bits` (given as those of 'others') on a path that exists."""
    found = path.stat()
    if found.st_uid == account.uid:
        bits <<= 6
    elif found.st_gid == account.gid:
        bits <<= 3
    return found.st_mode & bits == bits


def is_program_for(path: Path, account: Account) -> bool:
    """Whether an account may read and execute this file where it lies."""
    return is_open_to(path.parent, account) and _may(path, account, stat.S_IROTH | stat.S_IXOTH)


def digest_of(home: Path) -> str:
    """A short name that stands for a home directory."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]


def state_root(account: Account) -> Path:
    """`STATE_ROOT`, made if missing, for root only.

    Raises:
        ConfigurationError: it cannot be made, or exists and is closed to `account`.
    """
    STATE_ROOT.parent.mkdir(parents=True, exist_ok=True)
    make_directory(STATE_ROOT, 0o711, at_most=0o755)
    if not is_open_to(STATE_ROOT, account):
        raise ConfigurationError(
            "closed_directory",
            f"the account {account.name}, which runs Postgres for root, cannot pass through {STATE_ROOT}",
            f"run: chmod o+x {STATE_ROOT}; or start Gristmill as a plain user, or set GRISTMILL_DATABASE_URL",
        )
    return STATE_ROOT


def socket_directory(wanted: Path, socket_name: str, home: Path, owner: Account | None = None) -> Path:
    """A private (0700) directory for a socket: `wanted`, or a short one in /tmp where its path would be too
    long.

    Raises:
        ConfigurationError: it cannot be made, or exists and is not safe to use.
    """
    return make_directory(socket_directory_path(wanted, socket_name, home), 0o700, owner)


def socket_directory_path(wanted: Path, socket_name: str, home: Path) -> Path:
    """Which directory `socket_directory` uses, without making or checking it."""
    if len(os.fsencode(wanted / socket_name)) <= SOCKET_PATH_BYTES:
        return wanted
    return _SHORT_ROOT / f"gristmill-{digest_of(home)}-{wanted.parent.name}"
