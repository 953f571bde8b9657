"""Which addresses may be reached on somebody else's word: public ones, and those that the operator opened.

A URL that comes in from outside must not lead to the machine itself, its neighbours or a cloud's metadata service.
Names prove nothing, so the form of a URL is checked first (`check_url`) and then every address its host resolves to
(`Boundary.addresses_of`); the connection has to go to what that returns.

Source of the networks: the IANA special-purpose address registries, RFC 6890 and its updates. They are written out,
since what `ipaddress.is_global` says differs between Python releases.
"""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import httpx

from pipelines.errors import ConfigurationError, PermanentError, RetryableError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
"""Host name and port to addresses, as `resolve` does it."""

MAX_URL_CHARACTERS = 2_048
REMEDY = "give a public http or https address; an operator can open others with GRISTMILL_FETCH_ALLOW"

_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a carrier's NAT
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_OPEN_6 = IPv6Network("2000::/3")  # all that is handed out for public use
_CLOSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # Teredo, ORCHID, benchmarks
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",  # most clouds
            "169.254.170.2",  # AWS, containers
            "169.254.170.23",
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure; a public address otherwise
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",  # Google
        ),
    )
)


def parse_url(url: str) -> httpx.URL:
    """A URL in its normal form: scheme and host in lower case and ASCII, no default port, no fragment.

    http and https only, no user or password, ports 80, 443 and from 1024 up (below are services that speak other
    protocols), and a host that is a name or an address in its one canonical spelling: `2130706433`, `0x7f.1`,
    `127.1` or circled digits are ways round a check, never ways to a document.

    Raises:
        PermanentError: `fetch_refused`, with what is wrong.
    """
    if len(url) > MAX_URL_CHARACTERS:
        raise refused(f"the address has more than {MAX_URL_CHARACTERS:,} characters")
    if _UNPRINTABLE.search(url.replace(" ", "%20")) or url != url.strip():
        raise refused("the address contains a backslash, white space or unprintable characters")
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise refused("the address does not begin with http:// or https://")
    try:
        parsed = httpx.URL(f"{scheme.lower()}://{rest}").copy_with(fragment=None)
        host = parsed.raw_host.decode("ascii").lower()
    except (httpx.InvalidURL, UnicodeError) as error:
        raise refused("the address is not a valid URL") from error
    if parsed.userinfo:
        raise refused("the address contains a user name or password")
    if parsed.port is not None and not (parsed.port in (80, 443) or 1024 <= parsed.port <= 65535):
        raise refused(f"port {parsed.port} is not one for web pages")
    if ":" in host:
        if not _is_address(host) or "%" in host:
            raise refused("the host is not a valid IPv6 address")
    else:
        host = host.removesuffix(".")
        if not _HOST.fullmatch(host):
            raise refused("the host is not a valid name")
        if _NUMBER.fullmatch(host.rsplit(".", 1)[-1]) and not _is_address(host):
            raise refused("the host is a number in a disguised form")
    if len(str(parsed)) > MAX_URL_CHARACTERS:
        raise refused(f"the address has more than {MAX_URL_CHARACTERS:,} characters when encoded")
    return parsed.copy_with(host=host)


def check_url(url: str) -> None:
    """Refuse a URL whose form alone rules it out. Where it leads is checked when it is connected to.

    Raises:
        PermanentError: `fetch_refused`, see `parse_url`.
    """
    parse_url(url)


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet, and any IPv4 address embedded in it as well."""
    if address in _METADATA:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    inner = _embedded(address)
    if inner is not None and not is_public(inner):
        return False
    if address.ipv4_mapped is not None or address in _NAT64:
        return True
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that traffic to this IPv6 address may end at: mapped, NAT64, 6to4, ISATAP."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    number = int(address)
    if address in _NAT64 or (number >> 32) & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE):
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def refused(cause: str) -> PermanentError:
    """The error of an address that may not be reached."""
    return PermanentError("fetch_refused", cause, REMEDY)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host as the system knows them.

    Raises:
        OSError: it has none, or no name server answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(frozen=True, slots=True)
class Boundary:
    """Between what may be reached and what not: the public internet, and what the operator opened.

    Metadata services of clouds stay closed whatever is opened: their answers are keys.
    """

    hosts: frozenset[str]
    networks: tuple[Network, ...]

    @classmethod
    def of(cls, entries: Iterable[str]) -> Boundary:
        """From the setting `fetch_allow`.

        Args:
            entries: host names, addresses, or networks as `10.1.0.0/16`.

        Raises:
            ConfigurationError: an entry is none of these.
        """
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in entries:
            text = entry.strip().lower().removesuffix(".").removeprefix("[").removesuffix("]")
            if "/" in text or _is_address(text):
                try:
                    networks.append(ipaddress.ip_network(text))
                except ValueError as error:
                    raise _bad_entry(entry) from error
            elif _HOST.fullmatch(text) and not _NUMBER.fullmatch(text.rsplit(".", 1)[-1]):
                hosts.add(text)
            else:
                raise _bad_entry(entry)
        return cls(frozenset(hosts), tuple(networks))

    def allows(self, host: str, address: Address) -> bool:
        """Whether `host` may be reached at this address of it."""
        plain = _embedded(address) if isinstance(address, IPv6Address) else None
        both = (address,) if plain is None else (address, plain)
        if any(each in _METADATA for each in both):
            return False
        if host in self.hosts:
            return True
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return is_public(address) or any((mapped or address) in network for network in self.networks)

    def addresses_of(self, host: str, port: int, *, seconds: float, resolve: Resolve = resolve) -> list[str]:
        """Resolve a host once and check every address of it; connect to these and to nothing else.

        Args:
            host: as `parse_url` leaves it.
            seconds: longest wait for the name servers.

        Raises:
            PermanentError: `fetch_refused`: one of them may not be reached.
            RetryableError: `fetch_failed`: it has none, at least now.
        """
        found = [host] if _is_address(host) else _resolve_within(host, port, seconds, resolve)
        if not found:
            raise RetryableError("fetch_failed", f"{host} has no address", "check its spelling")
        for text in found:
            try:
                address = ipaddress.ip_address(text)
            except ValueError as error:
                raise refused(f"{host} has no usable address") from error
            if not self.allows(host, address):
                raise refused(f"{host} is not on the public internet")
        return found


def _resolve_within(host: str, port: int, seconds: float, resolve: Resolve) -> list[str]:
    """Resolve in a thread of its own: a name server that is silent would hold us far longer than `seconds`."""
    answers: queue.Queue[list[str] | OSError | UnicodeError] = queue.Queue()

    def ask() -> None:
        try:
            answers.put(list(resolve(host, port)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=max(seconds, 0.0))
    except queue.Empty:
        answer = TimeoutError("no name server answered in time")
    if isinstance(answer, Exception):
        raise RetryableError("fetch_failed", f"{host} has no address: {answer}", "check its spelling") from answer
    return answer


def _bad_entry(entry: str) -> ConfigurationError:
    return ConfigurationError(
        "invalid_setting",
        f"GRISTMILL_FETCH_ALLOW names {entry!r}, which is neither a host nor a network",
        'give host names, addresses or networks in CIDR form, e.g. ["wiki.example.org", "10.1.0.0/16"]',
    )
