"""The proxies that the environment wants; loaded for servers that are not on this machine."""

from urllib.request import getproxies, proxy_bypass

from talaria.providers.connecting import Address, read_url


def find_proxy(to: Address) -> Address | None:
    """Return the proxy on the way to a server, or raise `ValueError` for one of a kind that we cannot use."""
    url = None if proxy_bypass(to.authority) else getproxies().get(to.scheme)
    if not url:
        return None
    return read_url(url if "://" in url else f"http://{url}")[0]
