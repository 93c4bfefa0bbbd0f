"""One session with one transcript: from a terminal to a topic on Telegram, back, and to a thread on Slack."""

import re
from pathlib import Path

import msgspec
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import opened, ready, say
from tests.system.handoff_fixture import hand_off_from_terminal
from tests.system.test_gateway_process import running

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.slack_server import APP_TOKEN, TOKEN, SlackServer
from talaria.testing.telegram_server import TelegramServer


def answer(received: Received) -> Say:
    if "title of at most six words" in received.body.decode():
        return Say("The boat")
    if "They have moved this conversation" in received.question:
        return Say(f"I am here, behind {len(received.json['messages']) - 2} messages.")
    return Say(f"re: {received.question}")


def prepare_program(
    home: Path, server: ModelServer, telegram: TelegramServer, slack: SlackServer, *people: str
) -> Program:
    """Return a program that is set up for both networks, whose owner these people are."""
    return scripted_program(
        home,
        server,
        f"[access]\nowners = {msgspec.json.encode(people).decode()}\n"
        f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
        f'base_file_url = "{telegram.base_file_url}"\n'
        f'[platforms.slack.options]\nbase_url = "{slack.base_url}"\n',
        f"TELEGRAM_BOT_TOKEN={telegram.token}\nSLACK_BOT_TOKEN={TOKEN}\nSLACK_APP_TOKEN={APP_TOKEN}\n",
    )


async def test_session_moves_from_terminal_to_telegram_and_back_and_to_slack(
    tmp_path: Path, server: ModelServer
) -> None:
    server.answering(answer)
    async with TelegramServer() as telegram, SlackServer() as slack:
        ann, same = telegram.user("Ann"), slack.user("Ann")
        program = prepare_program(tmp_path, server, telegram, slack, f"telegram:{ann.id}", f"slack:{same.id}")
        forum, channel = telegram.forum("Workshop", ann, admin=True), slack.channel("workshop", same)
        async with running(program):
            await forum.says(ann, "/sethome", mention=True)
            await forum.wait_for(lambda message: "my home chat on Telegram" in message.text)
            await channel.runs(same, "/talaria", "sethome")
            await channel.wait_for(lambda one: "my home chat on Slack" in one.text)
            async with opened(program) as screen:
                await ready(screen)
                await say(screen, "Build a boat.")
                await screen.wait_for(re.compile("re: Build a boat"))
                await hand_off_from_terminal(screen, "telegram")
            greeting = await forum.wait_for(lambda message: message.text == "I am here, behind 2 messages.")
            assert greeting.thread
            await forum.says(ann, "Of oak.", thread=greeting.thread)
            oak = await forum.wait_for(lambda message: message.text == "re: [Ann] Of oak.")
            assert oak.thread == greeting.thread
            async with opened(program) as screen:
                await ready(screen)
                await say(screen, "/resume The boat")
                await screen.wait_for(re.compile("Back in The boat"))
                await forum.wait_for(lambda message: "has moved to the terminal" in message.text)
                await say(screen, "With a sail.")
                await screen.wait_for(re.compile("re: With a sail"))
                await hand_off_from_terminal(screen, "slack")
            here = await channel.wait_for(lambda one: one.text == "I am here, behind 8 messages.")
            assert any(one.ts == here.thread_ts and "The boat" in one.text for one in channel.answers)
            await channel.says(same, "And now?", thread=here.thread_ts)
            last = await channel.wait_for(lambda one: one.text == "re: [Ann] And now?")
            assert last.thread_ts == here.thread_ts
        assert slack.hub.complaints == []
    database = open_sqlite(tmp_path / "profiles" / "default" / "talaria.db")
    try:
        (address,), texts = database.read(find_addresses), database.read(transcript)
    finally:
        database.close()
    assert (address.platform, address.chat_id, address.thread_id) == ("slack", channel.id, here.thread_ts)
    assert [text for text in texts if not text.startswith("This message is automatic, not from the person")] == [
        "Build a boat.",
        "re: Build a boat.",
        "I am here, behind 2 messages.",
        "Of oak.",
        "re: [Ann] Of oak.",
        "With a sail.",
        "re: With a sail.",
        "I am here, behind 8 messages.",
        "And now?",
        "re: [Ann] And now?",
    ]


def find_addresses(tx: Transaction) -> list[Address]:
    (session,) = tx.sessions.find(SessionFilter(matching="The boat"))
    return [binding.address for binding in tx.bindings.of_session(session.id)]


def transcript(tx: Transaction) -> list[str]:
    (session,) = tx.sessions.find(SessionFilter(matching="The boat"))
    return [stored.message.text for stored in tx.messages.load(session.id)]
