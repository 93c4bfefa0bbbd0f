"""Speak Chat Completions with one account."""

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image
from talaria.providers.http import HttpPool
from talaria.providers.openai_chat.incoming import ReplyUnderway
from talaria.providers.openai_chat.outgoing import ChatEncoder, is_shown
from talaria.providers.openai_chat.settings import OpenAIChatSettings
from talaria.providers.over_http import Endpoint, ProviderOverHttp


class OpenAIChat(ProviderOverHttp):
    """Implements `Provider`; the pool belongs to whoever made it."""

    def __init__(self, settings: OpenAIChatSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/chat/completions", f"{base}/models"
        endpoint = Endpoint(settings.name, calls, models, headers, settings.timeouts, settings.source)
        super().__init__(endpoint, http, clock)
        self._settings = settings

    def shows(self, part: Image | File) -> bool:
        """Return whether this server can look at an attachment."""
        return is_shown(part, self._settings.quirks)

    def encoder(self) -> ChatEncoder:
        """Return what encodes the requests of a conversation."""
        return ChatEncoder(self._settings)

    def begin(self, request: ModelRequest) -> ReplyUnderway:
        """Return the reply to a call, still empty."""
        return ReplyUnderway(self.name, request.model)
