"""One conversation in one transcript: from a terminal to a topic on Telegram, back, and to a thread elsewhere."""

import asyncio
import re
from pathlib import Path

import msgspec
from tests.app.scripted import scripted_program
from tests.cli.live_screen import opened, ready, say
from tests.gateway.test_gateway import running

from talaria.contracts.platform import Abilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.sessions.homes import Home, write_home
from talaria.storage.sqlite.opening import open_sqlite
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.received import Received
from talaria.testing.telegram_server import TelegramServer

THREADS = Abilities(text_limit=4096, threads=True, idempotent=True)


def answer(received: Received) -> Say:
    if "title of at most six words" in received.body.decode():
        return Say("The boat")
    if "they have moved this conversation" in received.question:
        return Say(f"I am here, behind {len(received.json['messages']) - 2} messages.")
    return Say(f"re: {received.question}")


async def test_terminal_to_telegram_and_back_and_on_to_another_thread(tmp_path: Path, server: ModelServer) -> None:
    server.answering(answer)
    async with TelegramServer() as telegram, LoopbackNetwork(THREADS) as network:
        ann = telegram.user("Ann")
        able = msgspec.json.encode(THREADS).decode()
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["telegram:{ann.id}", "loopback:ann"]\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n'
            f"[platforms.loopback.options]\naddress = \"{network.address}\"\nabilities = '{able}'\n",
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        forum = telegram.forum("Workshop", ann, admin=True)
        async with running(program):
            await forum.says(ann, "/sethome", mention=True)
            await forum.wait_for(lambda message: "my home on telegram" in message.text, within=20)
            async with opened(program) as screen:
                await ready(screen)
                await say(screen, "Build a boat.")
                await screen.wait_for(re.compile("re: Build a boat"))
                await say(screen, "/handoff telegram")
                async with asyncio.timeout(30):
                    assert await screen.process.wait() == 0
            greeting = await forum.wait_for(lambda message: message.text == "I am here, behind 2 messages.", within=20)
            assert greeting.thread
            await forum.says(ann, "Of oak.", thread=greeting.thread)
            oak = await forum.wait_for(lambda message: message.text == "re: Of oak.", within=20)
            assert oak.thread == greeting.thread
            database = open_sqlite(tmp_path / "profiles" / "default" / "talaria.db")
            try:
                database.write(lambda tx: write_home(tx, Home(Address("loopback", "ann"))))
                async with opened(program) as screen:
                    await ready(screen)
                    await say(screen, "/resume The boat")
                    await screen.wait_for(re.compile("Back in The boat"))
                    await forum.wait_for(lambda message: "goes on in the terminal" in message.text, within=20)
                    await say(screen, "With a sail.")
                    await screen.wait_for(re.compile("re: With a sail"))
                    await say(screen, "/handoff loopback")
                    async with asyncio.timeout(30):
                        assert await screen.process.wait() == 0
                (place,) = database.read(places)
                assert place.platform == "loopback"
                assert place.thread_id
                here = "I am here, behind 8 messages."
                await network.until(lambda: network.shown("ann", place.thread_id) == [here], seconds=20)
                network.say(place, "And now?", sender="ann")
                await network.until(lambda: "re: And now?" in network.shown("ann", place.thread_id), seconds=20)
                said = database.read(transcript)
            finally:
                database.close()
    assert [text for text in said if not text.startswith("This is not from the person")] == [
        "Build a boat.",
        "re: Build a boat.",
        "I am here, behind 2 messages.",
        "Of oak.",
        "re: Of oak.",
        "With a sail.",
        "re: With a sail.",
        "I am here, behind 8 messages.",
        "And now?",
        "re: And now?",
    ]


def places(tx: Transaction) -> list[Address]:
    (session,) = tx.sessions.find(SessionFilter(matching="The boat"))
    return [binding.address for binding in tx.bindings.of_session(session.id)]


def transcript(tx: Transaction) -> list[str]:
    (session,) = tx.sessions.find(SessionFilter(matching="The boat"))
    return [stored.message.text for stored in tx.messages.load(session.id)]
