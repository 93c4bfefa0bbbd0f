"""Speak Messages with one account."""

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image
from talaria.providers.anthropic.incoming import ReplyUnderway
from talaria.providers.anthropic.outgoing import AnthropicEncoder, is_shown
from talaria.providers.anthropic.settings import AnthropicSettings
from talaria.providers.http import HttpPool
from talaria.providers.over_http import Endpoint, ProviderOverHttp

VERSION = "2023-06-01"


class Anthropic(ProviderOverHttp):
    """Implements `Provider`; the pool belongs to whoever made it."""

    def __init__(self, settings: AnthropicSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        headers = {"x-api-key": settings.api_key, "anthropic-version": VERSION, **settings.headers}
        calls, models = f"{base}/messages", f"{base}/models?limit=1000"
        endpoint = Endpoint(settings.name, calls, models, headers, settings.timeouts, settings.source)
        super().__init__(endpoint, http, clock)
        self._settings = settings

    def shows(self, part: Image | File) -> bool:
        """Return whether this server can look at an attachment."""
        return is_shown(part, self._settings.quirks)

    def encoder(self) -> AnthropicEncoder:
        """Return what encodes the requests of a conversation."""
        return AnthropicEncoder(self._settings)

    def begin(self, request: ModelRequest) -> ReplyUnderway:
        """Return the reply to a call, still empty."""
        return ReplyUnderway(self.name, request.model)
