"""The Chat Completions adapter for one account."""

from functools import partial

from talaria.contracts.clock import Clock
from talaria.http_client.client import HttpPool
from talaria.providers.base.http_provider import Endpoint, ProviderOverHttp, WireFormat
from talaria.providers.openai_chat.incoming import ReplyUnderway
from talaria.providers.openai_chat.outgoing import ChatEncoder, is_shown
from talaria.providers.settings import OpenAIChatSettings


class OpenAIChat(ProviderOverHttp):
    """The provider for OpenAI's Chat Completions protocol; its creator owns the pool."""

    def __init__(self, settings: OpenAIChatSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/chat/completions", settings.models_url or f"{base}/models"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(ChatEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)
