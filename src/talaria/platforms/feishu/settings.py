"""Settings of the Feishu and Lark adapter."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.http_client.bearer_tokens import GrantedToken
from talaria.platforms.webhook_endpoint import EndpointSettings, read_endpoint

PORT = 8649
_HOSTS = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}


class _Answer(Struct):
    tenant_access_token: str
    expire: int = 7200


class TenantTokenRequest(Struct, frozen=True):
    """A `TokenRequest` with the app's own secret."""

    api: str
    app_id: str
    secret: str
    content_type: str = "application/json; charset=utf-8"

    def url(self) -> str:
        """Return the address of the authority."""
        return f"{self.api}/open-apis/auth/v3/tenant_access_token/internal"

    def encode(self, now: datetime) -> bytes:
        """Return the body of the request."""
        return msgspec.json.encode({"app_id": self.app_id, "app_secret": self.secret})

    def decode(self, data: bytes) -> GrantedToken:
        """Return the token of an answer; raises `ValueError` if it has none."""
        answer = msgspec.json.decode(data, type=_Answer)
        return GrantedToken(answer.tenant_access_token, answer.expire)


class FeishuSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One app: ``app_id`` and ``secret`` call; ``encrypt_key`` and ``token`` prove the posts to the ``endpoint``.

    ``domain`` is ``feishu`` in China, ``lark`` elsewhere; ``api_url`` replaces its address. In groups the bot is
    addressed when it is mentioned (``mention``) or always (``free``). ``file_limit`` is the size in bytes of the
    largest file, in both directions. A call takes ``patience`` at most, one with a file ``file_patience``.
    """

    app_id: str
    secret: str
    encrypt_key: str
    token: str
    endpoint: EndpointSettings
    name: str = "feishu"
    domain: Literal["feishu", "lark"] = "feishu"
    group_mode: Literal["mention", "free"] = "mention"
    api_url: str = ""
    file_limit: Annotated[int, Meta(ge=0)] = 30 * 1024 * 1024
    patience: timedelta = timedelta(seconds=15)
    file_patience: timedelta = timedelta(seconds=120)

    @property
    def api(self) -> str:
        """Return the address of the API."""
        return (self.api_url or _HOSTS[self.domain]).rstrip("/")

    @property
    def token_request(self) -> TenantTokenRequest:
        """Return the request for the token of calls."""
        return TenantTokenRequest(self.api, self.app_id, self.secret)


def read_settings(name: str, options: Mapping[str, str], secrets: Mapping[str, str]) -> FeishuSettings:
    """Return the settings for these options and secrets; raises `Refused` for invalid ones."""
    endpoint, others = read_endpoint(name, options, PORT)
    if not endpoint.public_url.startswith("https://"):
        raise Refused(f"The option public_url of platforms.{name} must start with https://: Feishu calls nothing else.")
    given: dict[str, object] = {**others, **secrets, "endpoint": endpoint, "name": name}
    try:
        return msgspec.convert(given, FeishuSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{name}: {error}.") from error
