"""Refusals of the loopback Slack workspace, as the official client sees them."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from talaria.testing.slack_server import APP_TOKEN, TOKEN, SlackServer, User


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as there:
        yield there


@pytest.fixture
def ann(server: SlackServer) -> User:
    return server.user("Ann")


@pytest.fixture
def web(server: SlackServer) -> AsyncWebClient:
    return AsyncWebClient(TOKEN, base_url=server.base_url)


async def refusal(web: AsyncWebClient, method: str, **arguments: Any) -> str:
    with pytest.raises(SlackApiError) as no:
        await web.api_call(method, json=arguments)
    return str(no.value.response["error"])


def text_block(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def rich(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "unheard_of"}],
        [text_block("")],
        [text_block("x" * 3001)],
        [text_block("x")] * 51,
        [rich({"type": "text", "text": ""})],
        [rich({"type": "link", "url": "javascript:x"})],
        [rich({"type": "text", "text": "x", "style": {"underlined": True}})],
        [{"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]] * 101}],
        [{"type": "table", "rows": [[{"type": "raw_text", "text": "x"}]]}] * 2,
        [{"type": "actions", "elements": []}],
        [{"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "x" * 76}}]}],
    ],
)
async def test_invalid_blocks_are_refused(
    server: SlackServer, web: AsyncWebClient, ann: User, blocks: list[Any]
) -> None:
    chat = server.direct(ann)
    assert await refusal(web, "chat.postMessage", channel=chat.id, text="x", blocks=blocks) == "invalid_blocks"
    assert chat.answers == []


async def test_each_invalid_request_has_its_error_name(server: SlackServer, web: AsyncWebClient, ann: User) -> None:
    chat, channel = server.direct(ann), server.channel("family", ann)
    theirs = await channel.says(ann, "mine")
    assert await refusal(web, "chat.postMessage", channel="C1", text="x") == "channel_not_found"
    assert await refusal(web, "chat.postMessage", channel=chat.id, text=" ") == "no_text"
    assert await refusal(web, "chat.postMessage", channel=chat.id, text="x" * 40_001) == "msg_too_long"
    assert await refusal(web, "chat.postMessage", channel=chat.id, text="x", thread_ts="1.1") == "thread_not_found"
    assert await refusal(web, "chat.postMessage", channel=chat.id, text="x", colour="red") == "invalid_arguments"
    assert await refusal(web, "chat.postMessage", channel=chat.id, text="x", metadata={"a": 1}) == (
        "invalid_metadata_format"
    )
    assert await refusal(web, "chat.update", channel=channel.id, ts=theirs.ts, text="x") == "cant_update_message"
    assert await refusal(web, "chat.unheardOf") == "unknown_method"
    channel.remove_bot()
    assert await refusal(web, "chat.postMessage", channel=channel.id, text="x") == "not_in_channel"


async def test_each_token_works_for_its_own_methods_only(server: SlackServer, web: AsyncWebClient) -> None:
    assert await refusal(AsyncWebClient("xoxb-wrong", base_url=server.base_url), "auth.test") == "invalid_auth"
    assert await refusal(web, "apps.connections.open") == "not_allowed_token_type"
    assert (await web.apps_connections_open(app_token=APP_TOKEN))["ok"]


async def test_ticket_works_once_and_invalid_acknowledgements_are_recorded(
    server: SlackServer, web: AsyncWebClient, ann: User
) -> None:
    url = (await web.apps_connections_open(app_token=APP_TOKEN))["url"]
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "hello"
            await server.direct(ann).says(ann, "hello")
            envelope = await socket.receive_json()
            for envelope_id in (envelope["envelope_id"], envelope["envelope_id"], "another"):
                await socket.send_json({"envelope_id": envelope_id})
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)
    assert (envelope["type"], envelope["retry_attempt"]) == ("events_api", 0)
    assert len(server.hub.complaints) == 2


async def test_unacknowledged_event_is_redelivered_with_a_retry_count(
    server: SlackServer, web: AsyncWebClient, ann: User
) -> None:
    await server.direct(ann).says(ann, "hello")
    seen = []
    for _ in range(3):
        url = (await web.apps_connections_open(app_token=APP_TOKEN))["url"]
        async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
            await socket.receive_json()
            seen.append(await socket.receive_json())
    assert [one["retry_attempt"] for one in seen] == [0, 1, 2]
    assert len({one["envelope_id"] for one in seen}) == 3
    assert len({one["payload"]["event_id"] for one in seen}) == 1


async def test_upload_of_another_length_than_announced_is_refused(
    server: SlackServer, web: AsyncWebClient, ann: User
) -> None:
    answer = await web.files_getUploadURLExternal(filename="a.txt", length=3)
    async with aiohttp.ClientSession() as session, session.post(answer["upload_url"], data=b"1234") as refused:
        assert refused.status == 400
    files = [{"id": answer["file_id"], "title": "a"}]
    assert await refusal(web, "files.completeUploadExternal", files=files, channel_id=server.direct(ann).id) == (
        "file_not_found"
    )
