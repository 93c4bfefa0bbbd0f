"""The Messages adapter for one account."""

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image
from talaria.providers.anthropic.incoming import ReplyUnderway
from talaria.providers.anthropic.outgoing import AnthropicEncoder, is_shown
from talaria.providers.anthropic.settings import AnthropicSettings
from talaria.providers.base.http_provider import Endpoint, ProviderOverHttp
from talaria.providers.http.client import HttpPool

VERSION = "2023-06-01"


class Anthropic(ProviderOverHttp):
    """The provider for Anthropic's Messages protocol; its creator owns the pool."""

    def __init__(self, settings: AnthropicSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        headers = {"x-api-key": settings.api_key, "anthropic-version": VERSION, **settings.headers}
        calls, models = f"{base}/messages", f"{base}/models?limit=1000"
        endpoint = Endpoint(settings.name, calls, models, headers, settings.timeouts, settings.source)
        super().__init__(endpoint, http, clock)
        self._settings = settings

    def shows(self, part: Image | File) -> bool:
        """Return whether this server can view an attachment."""
        return is_shown(part, self._settings.quirks)

    def encoder(self) -> AnthropicEncoder:
        """Return the encoder for the requests of a session."""
        return AnthropicEncoder(self._settings)

    def begin(self, request: ModelRequest) -> ReplyUnderway:
        """Return an empty reply for a call."""
        return ReplyUnderway(self.name, request.model)
