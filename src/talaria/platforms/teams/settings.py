"""Settings of the Microsoft Teams adapter."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.http_client.bearer_tokens import ENTRA_AUTHORITY, EntraTokenRequest
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8647
TENANT = "botframework.com"  # of bots for all tenants
_SCOPE = "https://api.botframework.com/.default"


class TeamsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bot: ``app_id`` and ``secret`` of its app in the ``tenant``; Teams posts to the ``endpoint``.

    In groups the bot is addressed when it is mentioned (``mention``) or always (``free``). ``service_url`` is for chats
    that never wrote to us; ``openid_url`` names the keys that sign posts, and ``authority`` gives tokens out.
    ``file_limit`` is the size in bytes of the largest file, in both directions. A call takes ``patience`` at most, a
    download ``file_patience``.
    """

    app_id: str
    secret: str
    endpoint: EndpointSettings
    name: str = "teams"
    tenant: str = TENANT
    group_mode: Literal["mention", "free"] = "mention"
    service_url: str = "https://smba.trafficmanager.net/teams"
    authority: str = ENTRA_AUTHORITY
    openid_url: str = "https://login.botframework.com/v1/.well-known/openidconfiguration"
    file_limit: Annotated[int, Meta(ge=0)] = 20 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)

    @property
    def token_request(self) -> EntraTokenRequest:
        """Return the request for the token of calls."""
        return EntraTokenRequest(self.tenant, self.app_id, self.secret, self.authority, _SCOPE)


def read_settings(name: str, options: Mapping[str, str], app_id: str, secret: str) -> TeamsSettings:
    """Return the settings for these options; raises `Refused` for invalid ones."""
    endpoint, others = read_endpoint(name, options, PORT)
    if not endpoint.public_url.startswith("https://"):
        raise Refused(f"The option public_url of platforms.{name} must start with https://: Teams calls nothing else.")
    given: dict[str, object] = {**others, "app_id": app_id, "secret": secret, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, TeamsSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
