"""Settings of the Chat Completions adapter, and differences of servers from OpenAI's."""

from typing import Literal

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.providers.http.timeouts import Timeouts


class ChatQuirks(Struct, frozen=True, kw_only=True):
    """Server differences; the defaults suit an unknown server."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking", "unsupported"] = "reasoning_effort"
    schema: Literal["json_schema", "json_object", "unsupported"] = "json_schema"
    reasoning_back: Literal["", "reasoning_content", "reasoning"] = ""
    usage_on_request: bool = True
    alternating_roles: bool = False
    short_call_ids: bool = False
    images: bool = True
    documents: bool = False


class OpenAIChatSettings(Struct, frozen=True, kw_only=True):
    """One account; ``base_url`` is the part before ``/chat/completions``."""

    name: str
    base_url: str
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    quirks: ChatQuirks = ChatQuirks()
