"""Settings of the Google Chat adapter."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.http_client.bearer_tokens import GoogleTokenRequest
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8648
CHAT_ACCOUNT = "chat@system.gserviceaccount.com"
_SCOPE = "https://www.googleapis.com/auth/chat.bot"
_CHAT_KEYS = f"https://www.googleapis.com/service_accounts/v1/jwk/{CHAT_ACCOUNT}"
_ACCOUNT_KEYS = "https://www.googleapis.com/oauth2/v3/certs"


class GoogleChatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One app: the key file of its service account, and the ``endpoint`` that Google calls.

    Events are signed for the ``project_number``, or without one for the public address; ``keys_url`` replaces the
    address of the signing keys. ``file_limit`` is the size in bytes of the largest file, in both directions. A call
    takes ``patience`` at most, a download ``file_patience``.
    """

    credentials: Path
    endpoint: EndpointSettings
    name: str = "googlechat"
    project_number: Annotated[str, Meta(pattern=r"^\d*$")] = ""
    api_url: str = "https://chat.googleapis.com"
    keys_url: str = ""
    file_limit: Annotated[int, Meta(ge=0)] = 20 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)

    @property
    def token_request(self) -> GoogleTokenRequest:
        """Return the request for the token of calls."""
        return GoogleTokenRequest(self.credentials, _SCOPE)

    @property
    def audience(self) -> str:
        """Return who events are signed for."""
        return self.project_number or self.endpoint.public_url

    @property
    def issuers(self) -> list[str]:
        """Return who signs events."""
        return [CHAT_ACCOUNT] if self.project_number else ["https://accounts.google.com", "accounts.google.com"]

    @property
    def signing_keys_url(self) -> str:
        """Return the address of the keys that sign events."""
        return self.keys_url or (_CHAT_KEYS if self.project_number else _ACCOUNT_KEYS)


def read_settings(name: str, options: Mapping[str, str], credentials: str) -> GoogleChatSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    endpoint, others = read_endpoint(name, options, PORT)
    if not endpoint.public_url.startswith("https://"):
        raise Refused(f"The option public_url of platforms.{name} must start with https://: Google calls nothing else.")
    file = Path(credentials).expanduser()
    given: dict[str, object] = {**others, "credentials": file, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, GoogleChatSettings, strict=False, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
