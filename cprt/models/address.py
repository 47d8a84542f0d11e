"""Where an endpoint is, and the key that goes there and nowhere else."""

from __future__ import annotations

import ipaddress
import os
import re
from urllib.parse import urlsplit

from cprt.errors import InputError

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"  # of a host's name
_ADDRESS = re.compile(
    rf"https?://(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|{_LABEL}(?:\.{_LABEL})*\.?)(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?",
    re.IGNORECASE,
)


def is_address(url: str) -> bool:
    """Whether a text is http(s)://HOST[:PORT]/PATH in ASCII, with no user, password, query or blank in it."""
    match = _ADDRESS.fullmatch(url)
    if match is None or (match["port"] is not None and not 1 <= int(match["port"]) <= 65535):
        return False
    try:
        return match["ipv6"] is None or ipaddress.IPv6Address(match["ipv6"]) is not None
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether the endpoint is on this machine. A name other than localhost is not looked up and counts as remote."""
    host = (urlsplit(url).hostname or "").removesuffix(".")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_key(variable: str | None, model: str) -> str | None:
    """The key in an environment variable, None where none is named. Raises InputError that begins with ``model``."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"{model}: the environment variable {variable} with the key is not set")
    if not re.fullmatch(r"[!-~]+", key):
        why = "it holds a blank, a line break or another character that no header takes"
        raise InputError(f"{model}: what is in the environment variable {variable} is no key ({why})")
    return key
