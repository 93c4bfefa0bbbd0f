"""Servers of an XMPP domain, from its SRV records in DNS (RFC 6120 and XEP-0368)."""

import dns.asyncresolver
import dns.exception

_PORT = 5222
_SERVICES = (("_xmpps-client._tcp", True), ("_xmpp-client._tcp", False))
_SECONDS = 5.0


async def find_servers(domain: str, resolver: dns.asyncresolver.Resolver | None = None) -> list[tuple[str, int, bool]]:
    """Return host, port, and whether it uses TLS from the start, best first; the domain itself without records.

    A forged answer gains nothing: the certificate of the server must be one for the domain.
    """
    found = []
    for service, direct_tls in _SERVICES:
        try:
            resolver = resolver or dns.asyncresolver.Resolver()
            answer = await resolver.resolve(f"{service}.{domain}", "SRV", lifetime=_SECONDS)
        except dns.exception.DNSException:  # there is none, or DNS doesn't answer
            continue
        for record in answer:
            host = record.target.to_text(omit_final_dot=True)
            if host and host != ".":
                found.append((record.priority, -record.weight, host, record.port, direct_tls))
    return [(host, port, direct) for _, _, host, port, direct in sorted(found)] or [(domain, _PORT, False)]
