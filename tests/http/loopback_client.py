"""HTTP clients for servers on loopback: without proxies, and without certificates, which take 24 ms to load."""

import ssl
from typing import Any

import httpx

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def loopback_client(url: str, **options: Any) -> httpx.AsyncClient:
    """Return a client for a server; the options are those of `httpx.AsyncClient`."""
    return httpx.AsyncClient(base_url=url, trust_env=False, verify=_NO_CERTIFICATES, **options)
