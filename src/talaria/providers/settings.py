"""Settings of provider accounts, and the differences of servers from the protocols' own."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.http_client.connection import Timeouts


class RequestAuthorizer(Protocol):
    """Makes the headers that prove who sends a request, where a key alone doesn't."""

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers for one request."""

    async def renew(self, headers: Mapping[str, str]) -> bool:
        """Replace what the server has rejected with 401, and return whether another attempt makes sense."""


class AccountSettings(Struct, frozen=True, kw_only=True):
    """One account; ``base_url`` is the part of a URL before the paths of its protocol.

    ``models_url`` is the URL of the list of models, if it isn't below the base URL.
    """

    name: str
    base_url: str
    models_url: str = ""
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    authorizer: RequestAuthorizer | None = None


class ChatQuirks(Struct, frozen=True, kw_only=True):
    """Differences of Chat Completions servers; the defaults suit an unknown one."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking", "unsupported"] = "reasoning_effort"
    schema: Literal["json_schema", "json_object", "unsupported"] = "json_schema"
    reasoning_back: Literal["", "reasoning_content", "reasoning"] = ""
    usage_on_request: bool = True
    alternating_roles: bool = False
    short_call_ids: bool = False
    images: bool = True
    documents: bool = False


class OpenAIChatSettings(AccountSettings, frozen=True, kw_only=True):
    """An account for Chat Completions."""

    quirks: ChatQuirks = ChatQuirks()


class ResponsesQuirks(Struct, frozen=True, kw_only=True):
    """Differences of Responses servers; OpenAI gives reasoning summaries only to verified organisations.

    ChatGPT's server is ``always_streamed``, knows no limits of a reply, and requires ``instructions``.
    """

    summary: Literal["auto", "unsupported"] = "auto"
    always_streamed: bool = False
    limits: bool = True
    instructions: str = ""
    images: bool = True
    documents: bool = True


class OpenAIResponsesSettings(AccountSettings, frozen=True, kw_only=True):
    """An account for Responses."""

    quirks: ResponsesQuirks = ResponsesQuirks()


class AnthropicQuirks(Struct, frozen=True, kw_only=True):
    """Differences of Messages servers; models whose names start as in ``budget_models`` get a reasoning budget."""

    default_max_tokens: int = 8192
    budget_models: tuple[str, ...] = (
        "claude-3",
        "claude-opus-4-0",
        "claude-opus-4-1",
        "claude-opus-4-2",
        "claude-opus-4-5",
        "claude-sonnet-4-0",
        "claude-sonnet-4-2",
        "claude-sonnet-4-5",
        "claude-haiku-4-5",
    )
    cache_marks: bool = True
    images: bool = True
    documents: bool = True


class AnthropicSettings(AccountSettings, frozen=True, kw_only=True):
    """An account for Messages."""

    quirks: AnthropicQuirks = AnthropicQuirks()
