"""Providers of each protocol, connected to a scripted server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from talaria.contracts.provider import ModelEvent, ModelReply, ModelRequest, Provider
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.anthropic.adapter import Anthropic
from talaria.providers.openai_chat.adapter import OpenAIChat
from talaria.providers.openai_responses.adapter import OpenAIResponses
from talaria.providers.settings import (
    AnthropicSettings,
    ChatQuirks,
    OpenAIChatSettings,
    OpenAIResponsesSettings,
)

Connect = Callable[[str, HttpPool, Timeouts], Provider]
BRIEF = Timeouts(  # for a response that never arrives
    connect=timedelta(seconds=1), first_byte=timedelta(milliseconds=200), silence=timedelta(milliseconds=100)
)
PATIENT = Timeouts()


def connect_chat(url: str, http: HttpPool, timeouts: Timeouts) -> Provider:
    quirks = ChatQuirks(documents=True, reasoning_back="reasoning_content")
    settings = OpenAIChatSettings(name="test", base_url=f"{url}/v1", api_key="k", timeouts=timeouts, quirks=quirks)
    return OpenAIChat(settings, http)


def connect_responses(url: str, http: HttpPool, timeouts: Timeouts) -> Provider:
    settings = OpenAIResponsesSettings(name="test", base_url=f"{url}/v1", api_key="k", timeouts=timeouts)
    return OpenAIResponses(settings, http)


def connect_anthropic(url: str, http: HttpPool, timeouts: Timeouts) -> Provider:
    return Anthropic(AnthropicSettings(name="test", base_url=f"{url}/v1", api_key="k", timeouts=timeouts), http)


CONNECTORS: dict[str, Connect] = {
    "chat": connect_chat,
    "responses": connect_responses,
    "anthropic": connect_anthropic,
}


@asynccontextmanager
async def pool() -> AsyncIterator[HttpPool]:
    http = HttpPool()
    try:
        yield http
    finally:
        await http.close()


async def collect_reply(provider: Provider, request: ModelRequest) -> tuple[list[ModelEvent], ModelReply]:
    """Return the events of a provider and, separately, the reply that ends them."""
    events = [event async for event in provider.reply(request)]
    reply = events.pop()
    assert isinstance(reply, ModelReply)
    return events, reply


@asynccontextmanager
async def listening(url: str = "") -> AsyncIterator[tuple[int, list[str]]]:
    """Yield a port that forwards to ``url`` or, without one, sends nothing; and the list of its clients."""
    clients: list[str] = []
    target = url.rpartition(":")[2]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(str(writer.get_extra_info("peername")))
        try:
            if target:
                there_reader, there_writer = await asyncio.open_connection("127.0.0.1", int(target))
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
            else:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1], clients


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
