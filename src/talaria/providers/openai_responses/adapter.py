"""The Responses adapter for one account."""

from functools import partial

from talaria.contracts.clock import Clock
from talaria.http_client.client import HttpPool
from talaria.providers.base.http_provider import Endpoint, ProviderOverHttp, WireFormat
from talaria.providers.openai_responses.incoming import ReplyUnderway
from talaria.providers.openai_responses.outgoing import ResponsesEncoder, is_shown
from talaria.providers.settings import OpenAIResponsesSettings


class OpenAIResponses(ProviderOverHttp):
    """The provider for OpenAI's Responses protocol; its creator owns the pool."""

    def __init__(self, settings: OpenAIResponsesSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/responses", f"{base}/models"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(ResponsesEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)
