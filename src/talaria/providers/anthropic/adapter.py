"""The Messages adapter for one account."""

from functools import partial

from talaria.contracts.clock import Clock
from talaria.http_client.client import HttpPool
from talaria.providers.anthropic.incoming import ReplyUnderway
from talaria.providers.anthropic.outgoing import AnthropicEncoder, is_shown
from talaria.providers.base.http_provider import Endpoint, ProviderOverHttp, WireFormat
from talaria.providers.settings import AnthropicSettings

VERSION = "2023-06-01"


class Anthropic(ProviderOverHttp):
    """The provider for Anthropic's Messages protocol; its creator owns the pool."""

    def __init__(self, settings: AnthropicSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        headers = {"x-api-key": settings.api_key, "anthropic-version": VERSION, **settings.headers}
        calls, models = f"{base}/messages", f"{base}/models?limit=1000"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(AnthropicEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)
