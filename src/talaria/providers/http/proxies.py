"""Proxies from the environment; imported for servers that are not on this machine."""

from urllib.request import getproxies, proxy_bypass

from talaria.providers.http.dial import Address, read_url


def find_proxy(to: Address) -> Address | None:
    """Return the proxy for a server, or raise `ValueError` for an unsupported kind."""
    url = None if proxy_bypass(to.authority) else getproxies().get(to.scheme)
    if not url:
        return None
    return read_url(url if "://" in url else f"http://{url}")[0]
