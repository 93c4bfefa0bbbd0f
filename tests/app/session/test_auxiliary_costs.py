"""Auxiliary calls of a session count towards its caps: titles and summaries, like turns."""

from datetime import UTC, datetime
from pathlib import Path

from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.testing.model_server import ModelServer, Say, Tokens
from talaria.testing.wait import until

SETTINGS = "[budget]\ntotal = 10.0\n[models.scripted]\ninput_price = 1.0\noutput_price = 1.0\n"


async def test_cost_of_a_title_counts_towards_the_caps(tmp_path: Path, server: ModelServer) -> None:
    server.script(
        Say("Five.", usage=Tokens(100, 10)),
        Say("Small numbers", usage=Tokens(200, 20)),
    )
    async with open_chat_client(tmp_path, server, SETTINGS, titled=True) as client:
        await client.say("Two and three?")
        await server.arrived(2)
        assert await until(lambda: spent(client, more_than=110)) == 330


async def test_cost_of_a_summary_counts_towards_the_caps(tmp_path: Path, server: ModelServer) -> None:
    long = "word " * 12_000
    server.script(
        Say(long, usage=Tokens(100, 10)),
        Say("Short.", usage=Tokens(100, 10)),
        Say("Goal: none.", usage=Tokens(300, 30)),
    )
    async with open_chat_client(tmp_path, server, SETTINGS) as client:
        await client.say("Say a lot.")
        await client.say("And a little.")
        await client.active_session.chat.conversation.compact()
        assert await spent(client) == 550


async def spent(client: ChatClient, *, more_than: int = 0) -> int:
    """Return the cost of this month in millionths of a dollar; 0 unless it exceeds ``more_than``."""
    amount = await client.application.store.read(lambda tx: tx.ledger.read_spent(f"all:{datetime.now(UTC):%Y-%m}"))
    return amount if amount > more_than else 0
