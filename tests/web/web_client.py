"""A browser without a screen: the requests that the web app's page makes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.api.in_process_server import PATIENCE, Hosted
from tests.http.loopback_client import loopback_client

from talaria.access.browsers import create_code
from talaria.testing.wait import until

OWN_HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}


@asynccontextmanager
async def web_client(
    host: Hosted, *, person: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Sign in with a code, and yield a client with the cookie."""
    known = OWN_HEADERS if headers is None else headers
    async with loopback_client(host.url, timeout=PATIENCE, headers=known) as client:
        code = await host.application.store.write(lambda tx: create_code(tx, person=person))
        answer = await client.post("/web/login", json={"code": code}, headers=OWN_HEADERS)
        assert answer.status_code == 200, answer.text
        yield client


async def begin(client: httpx.AsyncClient, text: str, message_id: str = "m1") -> str:
    """Begin a conversation, and return its id."""
    answer = await client.post("/web/sessions", json={"text": text, "id": message_id})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


async def settled(client: httpx.AsyncClient, session: str, count: int) -> None:
    """Wait until no turn is running and the transcript has this many messages."""

    async def has_all() -> bool:
        detail = (await client.get(f"/web/sessions/{session}")).json()
        return not detail["running"] and detail["message_count"] >= count

    await until(has_all)


@asynccontextmanager
async def stream(client: httpx.AsyncClient, *topics: str, stream_id: str = "s1") -> AsyncIterator[AsyncIterator[Any]]:
    """Yield the messages of a stream."""
    async with client.stream("GET", "/web/stream", params={"id": stream_id, "topics": ",".join(topics)}) as reply:
        assert reply.status_code == 200

        async def messages() -> AsyncIterator[Any]:
            async for line in reply.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

        yield messages()


async def events_until(messages: AsyncIterator[Any], kind: str) -> list[Any]:
    """Return the events of a turn up to one of this kind; a turn that begins again replaces them, as on the page."""
    found: list[Any] = []
    async for message in messages:
        if message["topic"] == "session":
            if message["snapshot"]:
                found = []
            for event in message["events"]:
                found = [event] if event["type"] == "began" else [*found, event]
            if any(event["type"] == kind for event in found):
                return found
    raise AssertionError(f"the stream ended before {kind}: {found}")


def text_of(events: list[Any]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "text")
