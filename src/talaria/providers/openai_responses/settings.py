"""What the Responses adapter has to know of an account."""

from typing import Literal

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.providers.timeouts import Timeouts


class ResponsesQuirks(Struct, frozen=True, kw_only=True):
    """How a server differs; OpenAI gives summaries of thinking only to organisations that it has verified."""

    summary: Literal["auto", "unsupported"] = "auto"
    images: bool = True
    documents: bool = True


class OpenAIResponsesSettings(Struct, frozen=True, kw_only=True):
    """One account; ``base_url`` is what stands before ``/responses``."""

    name: str
    base_url: str
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    quirks: ResponsesQuirks = ResponsesQuirks()
