"""Slack's assistant view: suggestions, thread titles and status; optional everywhere."""

import asyncio
import logging

from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, SlowDown
from talaria.platforms.slack.client import CHANNEL_ERRORS, ApiClient, CallRefused, to_platform_error
from talaria.platforms.slack.events import AssistantThread

_STATUS = "is thinking…"
_PROMPTS = (("What can you do?", "What can you do for me?"), ("How are things?", "/status"), ("Commands", "/help"))
_TITLE_LIMIT = 80
_MOST_UNTITLED = 500
_PAUSE_SECONDS = 900.0
_GLOBAL_REFUSALS = frozenset({"unknown_method", "missing_scope", "method_deprecated", "not_allowed_token_type"})

log = logging.getLogger(__name__)


class Assistant:
    """The assistant features of threads."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._untitled: dict[tuple[str, str], None] = {}
        self._paused_until: dict[str, float] = {}

    async def greet(self, thread: AssistantThread) -> None:
        """Suggest prompts in a newly opened thread; its title comes with the first message."""
        if not thread.channel_id or not thread.thread_ts:
            return
        self._untitled[thread.channel_id, thread.thread_ts] = None
        if len(self._untitled) > _MOST_UNTITLED:
            del self._untitled[next(iter(self._untitled))]
        await self._client.attempt(
            self._client.web.assistant_threads_setSuggestedPrompts(
                channel_id=thread.channel_id,
                thread_ts=thread.thread_ts,
                prompts=[{"title": title, "message": message} for title, message in _PROMPTS],
            )
        )

    async def name(self, at: Address, text: str) -> None:
        """Give such a thread a title, from its first message."""
        if (at.chat_id, at.thread_id) not in self._untitled:
            return
        del self._untitled[at.chat_id, at.thread_id]
        title = " ".join(text.split())[:_TITLE_LIMIT]
        if title:
            await self._client.attempt(
                self._client.web.assistant_threads_setTitle(channel_id=at.chat_id, thread_ts=at.thread_id, title=title)
            )

    async def show_status(self, at: Address) -> None:
        """Show a status in a thread until the answer is there or two minutes have passed.

        If Slack refuses, it is not tried again for a while; a missing channel raises `Rejected`.
        """
        now = asyncio.get_running_loop().time()
        if not at.thread_id or any(self._paused_until.get(one, 0.0) > now for one in ("", at.chat_id)):
            return
        try:
            await self._client.ask_raw(
                self._client.web.assistant_threads_setStatus(
                    channel_id=at.chat_id, thread_ts=at.thread_id, status=_STATUS
                )
            )
        except CallRefused as call_refused:
            if call_refused.refusal.code in CHANNEL_ERRORS:
                raise to_platform_error(call_refused.refusal) from call_refused
            log.info("can't show a status in %s: %s", at.chat_id, call_refused)
            self._paused_until["" if call_refused.refusal.code in _GLOBAL_REFUSALS else at.chat_id] = (
                now + _PAUSE_SECONDS
            )
        except SlowDown as slow_down:
            self._paused_until[""] = now + slow_down.retry_after.total_seconds()
        except PlatformError as error:
            log.info("can't show a status in %s: %s", at.chat_id, error)
