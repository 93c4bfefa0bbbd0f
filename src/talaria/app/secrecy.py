"""What must not be shown anywhere: the values of the secrets that a profile uses."""

import re
from collections.abc import Iterator

from talaria.core.errors import NotFound
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.tools.workspace import without_secrets

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_LONG_FOR_A_HEADER = 20  # a word of this length is a token, and no media type


def secret_values(settings: Settings, secrets: Secrets) -> Iterator[str]:
    """Yield the value of every secret there is, and what settings hold that looks like one."""
    for name in {*secrets.names(), *_names(settings)}:
        yield secrets.get(name) or ""
    for server in settings.mcp.values():
        harmless = without_secrets(server.env)
        yield from (value for name, value in server.env.items() if name not in harmless)
    for headers in _headers(settings):
        yield from (word for value in headers.values() for word in value.split() if len(word) >= _LONG_FOR_A_HEADER)


def filled_in(text: str, secrets: Secrets) -> str:
    """Return the text with each ``${NAME}`` replaced by the secret of that name; raises `NotFound` without one."""

    def value(found: re.Match[str]) -> str:
        known = secrets.get(found[1])
        if known is None:
            raise NotFound(f"the secret {found[1]} is not set")
        return known

    return _REFERENCE.sub(value, text)


def _names(settings: Settings) -> Iterator[str]:
    """Yield the names by which settings refer to secrets."""
    for account in settings.providers.values():
        yield from (account.key, *account.keys)
    for server in settings.mcp.values():
        for text in (*server.env.values(), *server.headers.values()):
            yield from _REFERENCE.findall(text)


def _headers(settings: Settings) -> Iterator[dict[str, str]]:
    yield settings.telemetry.headers
    yield from (account.headers for account in settings.providers.values())
    yield from (server.headers for server in settings.mcp.values())
