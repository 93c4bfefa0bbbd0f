"""Settings of the Responses adapter."""

from typing import Literal

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.providers.http.timeouts import Timeouts


class ResponsesQuirks(Struct, frozen=True, kw_only=True):
    """Server differences; OpenAI gives reasoning summaries only to verified organisations."""

    summary: Literal["auto", "unsupported"] = "auto"
    images: bool = True
    documents: bool = True


class OpenAIResponsesSettings(Struct, frozen=True, kw_only=True):
    """One account; ``base_url`` is the part before ``/responses``."""

    name: str
    base_url: str
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    quirks: ResponsesQuirks = ResponsesQuirks()
