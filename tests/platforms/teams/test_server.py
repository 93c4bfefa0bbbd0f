"""The loopback Teams server with Microsoft's own client, and its activities in Microsoft's own model."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web
from microsoft_agents.activity import Activity, ChannelAccount, ConversationParameters
from microsoft_agents.hosting.core.connector.client import ConnectorClient

from talaria.testing.teams_server import TeamsServer, teams_server
from talaria.testing.wait import until

APP_ID, SECRET, TENANT = "00000000-1111-2222-3333-444444444444", "teams-secret-of-the-tests", "contoso.example"
PERSONAL, CHANNEL = "a:1personal-chat-of-ann", "19:plans@thread.tacv2"


@pytest.fixture
async def teams() -> AsyncIterator[TeamsServer]:
    async with teams_server(APP_ID, SECRET, TENANT, {PERSONAL: "personal", CHANNEL: "channel"}) as server:
        yield server


@pytest.fixture
async def client(teams: TeamsServer) -> AsyncIterator[ConnectorClient]:
    form = {"grant_type": "client_credentials", "client_id": APP_ID, "client_secret": SECRET}
    form["scope"] = "https://api.botframework.com/.default"
    async with (
        ClientSession() as session,
        session.post(f"{teams.url}/{TENANT}/oauth2/v2.0/token", data=form) as granted,
    ):
        token = (await granted.json())["access_token"]
    client = ConnectorClient(endpoint=teams.service_url, token=token)
    yield client
    await client.close()


async def test_the_official_client_posts_edits_and_starts_a_thread(teams: TeamsServer, client: ConnectorClient) -> None:
    def message(text: str) -> Activity:
        return Activity(type="message", text=text)

    posted = await client.conversations.send_to_conversation(PERSONAL, message("hello"))
    await client.conversations.update_activity(PERSONAL, posted.id, message("hello again"))
    thread = await client.conversations.create_conversation(
        ConversationParameters(
            is_group=True,
            bot=ChannelAccount(id=f"28:{APP_ID}"),
            channel_data={"channel": {"id": CHANNEL}},
            activity=message("news"),
        )
    )
    await client.conversations.send_to_conversation(thread.id, message("more news"))
    assert [(one.conversation, one.activity["text"]) for one in teams.sent] == [
        (PERSONAL, "hello again"),
        (f"{CHANNEL};messageid={thread.activity_id}", "news"),
        (thread.id, "more news"),
    ]


async def test_posted_activities_match_the_official_model(teams: TeamsServer) -> None:
    received: list[Activity] = []

    async def receive(request: web.Request) -> web.Response:
        received.append(Activity.model_validate(await request.json()))
        return web.Response()

    application = web.Application()
    application.add_routes([web.post("/teams", receive)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    teams.tunnel = f"http://127.0.0.1:{runner.addresses[0][1]}/teams"
    teams.say(CHANNEL, "ann", **teams.mention("hello"))
    teams.send_file(PERSONAL, "ann", "notes.txt", b"notes")
    await until(lambda: len(received) == 2)
    await runner.cleanup()
    asked, sent = received
    assert asked.remove_recipient_mention() == "&nbsp;hello"
    assert asked.conversation.conversation_type == "channel"
    assert sent.attachments[0].name == "notes.txt"
