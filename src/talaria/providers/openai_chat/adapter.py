"""Speak Chat Completions with one account."""

from collections.abc import AsyncGenerator

import msgspec

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ModelEvent, ModelRequest
from talaria.core.errors import MalformedReply
from talaria.providers.attachments import load_attachments
from talaria.providers.failures import failure
from talaria.providers.http import Answer, HttpPool
from talaria.providers.openai_chat.incoming import ReplyUnderway, read_models
from talaria.providers.openai_chat.outgoing import encode, is_shown
from talaria.providers.openai_chat.settings import OpenAIChatSettings


class OpenAIChat:
    """Implements `Provider`; the pool belongs to whoever made it."""

    def __init__(self, settings: OpenAIChatSettings, http: HttpPool, clock: Clock | None = None) -> None:
        self.name = settings.name
        self._settings = settings
        self._http = http
        self._clock = clock or SystemClock()
        self._base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._headers = {"Content-Type": "application/json", **key, **settings.headers}

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole."""
        settings = self._settings
        messages = await load_attachments(request.messages, lambda part: is_shown(part, settings.quirks))
        body = encode(msgspec.structs.replace(request, messages=messages), settings)
        underway = ReplyUnderway(self.name, request.model)
        async with self._http.post(f"{self._base}/chat/completions", body, self._headers, settings.timeouts) as answer:
            await self._check(answer)
            if answer.content_type == "application/json":
                for event in underway.take(await answer.body()):
                    yield event
            else:
                while not underway.done and (events := await answer.events()) is not None:
                    for data in events:
                        for event in underway.take(data):
                            yield event
                await answer.drain()
        yield underway.reply(self._clock.now())

    async def models(self) -> list[str]:
        """Return the names of the models that this account may use."""
        async with self._http.get(f"{self._base}/models", self._headers, self._settings.timeouts) as answer:
            await self._check(answer)
            return read_models(await answer.body())

    async def close(self) -> None:
        """Do nothing: connections belong to the pool."""

    async def _check(self, answer: Answer) -> None:
        if answer.status != 200:
            raise failure(self.name, answer.status, await answer.body(), answer.headers, self._clock.now())
        if answer.content_type not in {"application/json", "text/event-stream"}:
            raise MalformedReply(f"{self.name} answered with {answer.content_type}")
