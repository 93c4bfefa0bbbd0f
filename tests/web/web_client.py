"""HTTP client that makes the requests of the web app's page."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.api.in_process_server import PATIENCE, Hosted
from tests.http.loopback_client import loopback_client

from talaria.access.browsers import create_code
from talaria.testing.wait import until

OWN_HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}
_BRACES = re.compile(r"{\w+}")
_described: list["DescribedReplies"] = []  # of the first server of this process


class DescribedReplies:
    """The description of all routes, against which every reply to a client of these tests is checked."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._paths = [(re.compile(_BRACES.sub(".+", path)), path) for path in sorted(document["paths"])]
        self._validators: dict[str, Draft202012Validator] = {}

    async def check(self, reply: httpx.Response) -> None:
        """Fail unless status and body are among those described."""
        path, method = reply.request.url.path, reply.request.method.lower()
        if not (found := self.find(method, path)):
            assert reply.is_error or not path.startswith("/web/"), f"{method} {path} isn't described"
            return
        described = self.document["paths"][found][method]["responses"]
        assert reply.is_error or str(reply.status_code) in described, f"{method} {path}: {reply.status_code}"
        content = described.get(str(reply.status_code), described["default"]).get("content", {})
        if schema := content.get("application/json", {}).get("schema"):
            await reply.aread()
            self._validator(schema).validate(reply.json())

    def find(self, method: str, path: str) -> str:
        """Return the path of the route for a request, with its braces; empty if it isn't described."""
        fitting = [one for pattern, one in self._paths if pattern.fullmatch(path)]
        described = [one for one in fitting if method.lower() in self.document["paths"][one]]
        return max(described, key=lambda one: len(_BRACES.sub("", one)), default="")

    def _validator(self, schema: Mapping[str, Any]) -> Draft202012Validator:
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({**schema, "components": self.document["components"]})
        return self._validators[key]


async def described_replies(host: Hosted) -> DescribedReplies:
    """Return the OpenAPI description of this server, or of an earlier one: all have the same routes."""
    if not _described:
        _described.append(DescribedReplies((await host.http.get("/openapi.json")).json()))
    return _described[0]


@asynccontextmanager
async def web_client(
    host: Hosted, *, person: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Sign in with a code, and yield a client with the cookie; replies that aren't described are failures."""
    known = OWN_HEADERS if headers is None else headers
    async with loopback_client(host.url, timeout=PATIENCE, headers=known) as client:
        client.event_hooks["response"].append((await described_replies(host)).check)
        code = await host.application.store.write(lambda tx: create_code(tx, person=person))
        answer = await client.post("/web/login", json={"code": code}, headers=OWN_HEADERS)
        assert answer.status_code == 200, answer.text
        yield client


async def begin(client: httpx.AsyncClient, text: str, message_id: str = "m1") -> str:
    """Start a session, and return its id."""
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
    """Return the events of a turn up to one of this kind; a restarted turn replaces them, as on the page."""
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
