"""Finding other nodes on the local network, and being found: DNS-SD by zeroconf.

The only file that imports zeroconf, and ifaddr which it needs. An announcement is only a hint where
somebody may be: a name that is not among the known nodes is passed over, and who answers must prove
its name as any peer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

import ifaddr
from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, ServiceListener, Zeroconf

SERVICE = "_denwatch._tcp.local."
_PATIENCE = 3_000  # ms to resolve an announcement

Found = Callable[[str, str, int, bool], None]  # name, host, port, whether it speaks TLS


class Discovery:
    """Announces this node and reports others; `found` is called in zeroconf's thread."""

    def __init__(self, name: str, found: Found, interfaces: list[str] | None = None) -> None:
        self._name = name
        self._found = found
        self._interfaces = interfaces
        self._zeroconf: Zeroconf | None = None
        self._browser: ServiceBrowser | None = None

    def start(self, addresses: list[str], port: int, has_tls: bool) -> None:
        """Announce our server, and look for others."""
        self._zeroconf = Zeroconf(interfaces=self._interfaces) if self._interfaces else Zeroconf()
        info = ServiceInfo(
            SERVICE,
            f"{self._name}.{SERVICE}",
            parsed_addresses=addresses,
            port=port,
            properties={"tls": "1" if has_tls else "0"},
            server=f"{self._name}.local.",
        )
        self._zeroconf.register_service(info)
        self._browser = ServiceBrowser(self._zeroconf, SERVICE, listener=_Listener(self._report))

    def stop(self) -> None:
        """Take the announcement back."""
        if self._zeroconf is not None:
            self._zeroconf.unregister_all_services()
            self._zeroconf.close()

    def _report(self, zeroconf: Zeroconf, service: str) -> None:
        name = service.removesuffix("." + SERVICE)
        info = zeroconf.get_service_info(SERVICE, service, _PATIENCE)
        if name == self._name or info is None or info.port is None:
            return
        hosts = info.parsed_addresses(IPVersion.V4Only) or info.parsed_addresses()
        if hosts:
            host = choose_near(hosts)
            self._found(name, host, info.port, info.properties.get(b"tls") == b"1")


class _Listener(ServiceListener):
    def __init__(self, report: Callable[[Zeroconf, str], None]) -> None:
        self._report = report

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:  # noqa: ARG002
        self._report(zc, name)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:  # noqa: ARG002
        self._report(zc, name)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Nothing: a link that breaks says so itself."""


def list_addresses() -> list[str]:
    """Return this machine's IPv4 addresses, those that others reach if there are any."""
    found = [str(address.ip) for address in _list_interfaces()]
    outside = [text for text in found if not ipaddress.ip_address(text).is_loopback]
    return outside or found


def choose_near(hosts: list[str]) -> str:
    """Return the first of a node's addresses that is in a network of ours, else the first."""
    for host in hosts:
        if any(ipaddress.ip_address(host) in near.network for near in _list_interfaces()):
            return host
    return hosts[0]


def _list_interfaces() -> list[ipaddress.IPv4Interface]:
    return [
        ipaddress.IPv4Interface(f"{ip.ip}/{ip.network_prefix}")
        for adapter in ifaddr.get_adapters()
        for ip in adapter.ips
        if ip.is_IPv4
    ]
