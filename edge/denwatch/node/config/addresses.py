"""URLs and addresses of the configuration, and which of them reach beyond this machine. Pure."""

from __future__ import annotations

import ipaddress
import re

from denwatch.node.config.model import Address

_URL = re.compile(r"(mqtts?)://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
_PLAIN_PORT, _TLS_PORT = 1883, 8883


def read_url(url: str) -> Address | str:
    """Return the address of mqtt://host:port or mqtts://host:port, or what is wrong with it."""
    found = _URL.fullmatch(url)
    if found is None:
        return f'"{url}" is not mqtt://HOST:PORT or mqtts://HOST:PORT'
    has_tls = found[1] == "mqtts"
    port = int(found[3]) if found[3] else (_TLS_PORT if has_tls else _PLAIN_PORT)
    if port > 65535:
        return f"there is no port {port}"
    return Address(found[2].strip("[]"), port, has_tls)


def read_address(text: str) -> Address | str:
    """Return the address of HOST:PORT, or what is wrong with it."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        return f'"{text}" is not HOST:PORT'
    return Address(host.strip("[]"), int(port))


def is_loopback(host: str) -> bool:
    """Return whether an address is of this machine only. A name that is not "localhost" is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
