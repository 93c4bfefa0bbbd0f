"""Public and private addresses, also inside other notations."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Ip = IPv4Address | IPv6Address
_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = (
    IPv4Network("168.63.129.16"),  # public addresses that are reachable only inside Azure
    IPv4Network("192.0.0.0/24"),  # and at Oracle
)


def is_public(ip: Ip) -> bool:
    """Return whether an address is public, even inside another notation."""
    if isinstance(ip, IPv6Address):
        if (inner := _inner(ip)) is not None:
            return is_public(inner)
        if ip.is_site_local:
            return False
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or any(ip in network for network in _METADATA))


def _inner(ip: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that traffic to this one reaches."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
