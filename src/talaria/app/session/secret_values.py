"""Values of a profile's secrets, for masking, and their insertion into settings."""

import re
from collections.abc import Iterator

from talaria.core.errors import NotFound
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets
from talaria.tools.workspace import remove_secrets

_REFERENCE = re.compile(r"\$\{(\w+)\}")
_TOKEN_LENGTH = 20  # a word of this length is taken for a token


def iterate_secret_values(settings: Settings, secrets: Secrets) -> Iterator[str]:
    """Yield the value of every secret, and values in the settings that look like secrets."""
    for name in {*secrets.names(), *_iterate_names(settings)}:
        yield secrets.get(name) or ""
    for server in settings.mcp.values():
        harmless = remove_secrets(server.env)
        yield from (value for name, value in server.env.items() if name not in harmless)
    for headers in _iterate_headers(settings):
        yield from (word for value in headers.values() for word in value.split() if len(word) >= _TOKEN_LENGTH)


def fill_secrets(text: str, secrets: Secrets) -> str:
    """Replace each ``${NAME}`` by the secret of that name; raises `NotFound` if it is not set."""

    def get_value(found: re.Match[str]) -> str:
        known = secrets.get(found[1])
        if known is None:
            raise NotFound(f"the secret {found[1]} isn't set")
        return known

    return _REFERENCE.sub(get_value, text)


def _iterate_names(settings: Settings) -> Iterator[str]:
    """Yield the names of the secrets that the settings refer to."""
    for account in settings.providers.values():
        yield from (account.key, *account.keys)
    for server in settings.mcp.values():
        for text in (*server.env.values(), *server.headers.values()):
            yield from _REFERENCE.findall(text)


def _iterate_headers(settings: Settings) -> Iterator[dict[str, str]]:
    yield settings.telemetry.headers
    yield from (account.headers for account in settings.providers.values())
    yield from (server.headers for server in settings.mcp.values())
