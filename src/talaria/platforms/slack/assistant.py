"""The view beside everything else in which Slack shows assistants; where there is none, nothing is missing."""

import asyncio
import logging

from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, SlowDown
from talaria.platforms.slack.calls import Calls, NotTaken
from talaria.platforms.slack.events import AssistantThread
from talaria.platforms.slack.refusals import GONE, our_error

_STATUS = "is thinking…"
_PROMPTS = (("What can you do?", "What can you do for me?"), ("How are things?", "/status"), ("Commands", "/help"))
_TITLE_LIMIT = 80
_UNTITLED = 500
_REST = 900.0
_EVERYWHERE = frozenset({"unknown_method", "missing_scope", "method_deprecated", "not_allowed_token_type"})

log = logging.getLogger(__name__)


class Assistant:
    """What is shown in threads besides messages."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._untitled: dict[tuple[str, str], None] = {}
        self._resting: dict[str, float] = {}

    async def greet(self, thread: AssistantThread) -> None:
        """Suggest what to ask in a thread that somebody has opened; its name comes with the first message."""
        if not thread.channel_id or not thread.thread_ts:
            return
        self._untitled[thread.channel_id, thread.thread_ts] = None
        if len(self._untitled) > _UNTITLED:
            del self._untitled[next(iter(self._untitled))]
        await self._calls.attempt(
            self._calls.web.assistant_threads_setSuggestedPrompts(
                channel_id=thread.channel_id,
                thread_ts=thread.thread_ts,
                prompts=[{"title": title, "message": message} for title, message in _PROMPTS],
            )
        )

    async def name(self, at: Address, text: str) -> None:
        """Give such a thread a name, by the first thing that is said in it."""
        if (at.chat_id, at.thread_id) not in self._untitled:
            return
        del self._untitled[at.chat_id, at.thread_id]
        title = " ".join(text.split())[:_TITLE_LIMIT]
        if title:
            await self._calls.attempt(
                self._calls.web.assistant_threads_setTitle(channel_id=at.chat_id, thread_ts=at.thread_id, title=title)
            )

    async def show_status(self, at: Address) -> None:
        """Show in a thread that an answer is being written, until it is there or two minutes have passed.

        Where Slack does not let us, it is not asked again for a while; a channel that is gone is `Rejected`.
        """
        now = asyncio.get_running_loop().time()
        if not at.thread_id or any(self._resting.get(one, 0.0) > now for one in ("", at.chat_id)):
            return
        try:
            await self._calls.ask_openly(
                self._calls.web.assistant_threads_setStatus(
                    channel_id=at.chat_id, thread_ts=at.thread_id, status=_STATUS
                )
            )
        except NotTaken as no:
            if no.refusal.code in GONE:
                raise our_error(no.refusal) from no
            log.info("nothing is shown beside messages in %s: %s", at.chat_id, no)
            self._resting["" if no.refusal.code in _EVERYWHERE else at.chat_id] = now + _REST
        except SlowDown as slow:
            self._resting[""] = now + slow.retry_after.total_seconds()
        except PlatformError as error:
            log.info("nothing is shown beside messages in %s: %s", at.chat_id, error)
