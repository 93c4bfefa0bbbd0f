"""The Responses adapter for one account."""

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image
from talaria.providers.base.http_provider import Endpoint, ProviderOverHttp
from talaria.providers.http.client import HttpPool
from talaria.providers.openai_responses.incoming import ReplyUnderway
from talaria.providers.openai_responses.outgoing import ResponsesEncoder, is_shown
from talaria.providers.openai_responses.settings import OpenAIResponsesSettings


class OpenAIResponses(ProviderOverHttp):
    """The provider for OpenAI's Responses protocol; its creator owns the pool."""

    def __init__(self, settings: OpenAIResponsesSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/responses", f"{base}/models"
        endpoint = Endpoint(settings.name, calls, models, headers, settings.timeouts, settings.source)
        super().__init__(endpoint, http, clock)
        self._settings = settings

    def shows(self, part: Image | File) -> bool:
        """Return whether this server can view an attachment."""
        return is_shown(part, self._settings.quirks)

    def encoder(self) -> ResponsesEncoder:
        """Return the encoder for the requests of a session."""
        return ResponsesEncoder(self._settings)

    def begin(self, request: ModelRequest) -> ReplyUnderway:
        """Return an empty reply for a call."""
        return ReplyUnderway(self.name, request.model)
