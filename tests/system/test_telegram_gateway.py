"""The gateway on Telegram: the process, the adapter and a Bot API server that is strict."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.telegram_server import TelegramServer
from talaria.testing.wait import LIMIT


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as telegram:
        yield telegram


async def test_a_message_on_telegram_is_answered_there(
    tmp_path: Path, server: ModelServer, telegram: TelegramServer
) -> None:
    ann = telegram.user("Ann")
    program = scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["telegram:{ann.id}"]\n'
        f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\nbase_file_url = "{telegram.base_file_url}"\n',
        f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
    )
    server.script(Say("Hello **Ann**, with `code`."))
    chat = telegram.private(ann)
    async with running(program):
        await chat.says(ann, "hello")
        async with asyncio.timeout(LIMIT):
            await chat.wait_for(lambda message: message.text == "Hello Ann, with code.")
        await chat.says(ann, "/whoami")
        async with asyncio.timeout(LIMIT):
            await chat.wait_for(lambda message: "owner" in message.text)
    assert {"goal", "status", "stop"} <= {command.command for menu in telegram.menus.values() for command in menu}


async def test_group_upgraded_to_a_supergroup_continues_its_session(
    tmp_path: Path, server: ModelServer, telegram: TelegramServer
) -> None:
    ann = telegram.user("Ann")
    program = scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["telegram:{ann.id}"]\n'
        f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\nbase_file_url = "{telegram.base_file_url}"\n',
        f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
    )
    server.answering(lambda received: Say(f"re: {received.question}"))
    group = telegram.group("Family", ann)
    async with running(program):
        await group.says(ann, "the code word is heron", mention=True)
        await group.wait_for(lambda message: message.text == "re: the code word is heron")
        large = telegram.world.upgrade(group, ann)
        await large.says(ann, "what was it?", mention=True)
        await large.wait_for(lambda message: message.text == "re: what was it?")
    request = next(one for one in server.received if one.question == "what was it?")
    assert "heron" in str(request.body)


async def test_start_greets_owners_and_guests_and_offers_strangers_a_code(
    tmp_path: Path, server: ModelServer, telegram: TelegramServer
) -> None:
    ann, ben, eve = telegram.user("Ann"), telegram.user("Ben"), telegram.user("Eve")
    program = scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["telegram:{ann.id}"]\nallowed = ["telegram:{ben.id}"]\n'
        f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\nbase_file_url = "{telegram.base_file_url}"\n',
        f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
    )
    greeted = {}
    async with running(program):
        for person in (ann, ben, eve):
            chat = telegram.private(person)
            await chat.says(person, "/start deep-link")
            async with asyncio.timeout(LIMIT):
                greeted[person.first_name] = (await chat.wait_for(lambda message: bool(message.text))).text
    assert greeted["Ann"].startswith("Hi, Ann! Just write what you need.")
    assert "/sethome" in greeted["Ann"]
    assert greeted["Ben"].startswith("Hi, Ben! Just write what you need.")
    assert "/sethome" not in greeted["Ben"]
    assert "talaria pairing approve telegram" in greeted["Eve"]
    assert not server.received


async def test_two_bots_of_one_gateway_answer_each_in_their_own_chats(
    tmp_path: Path, server: ModelServer, telegram: TelegramServer
) -> None:
    async with TelegramServer(token="7000000002:AAH-loopback-token-for-tests-only-000001") as other:
        ann, same_ann = telegram.user("Ann"), other.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["telegram:{ann.id}", "work:{same_ann.id}"]\n'
            '[personas.clerk]\ninstructions = "You are the clerk."\n'
            '[routes.work]\nnetwork = "work"\npersona = "clerk"\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n'
            '[platforms.work]\nnetwork = "telegram"\n'
            f'[platforms.work.options]\nbase_url = "{other.base_url}"\nbase_file_url = "{other.base_file_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\nWORK_TELEGRAM_BOT_TOKEN={other.token}\n",
        )
        server.answering(lambda received: Say("Clerk." if b"You are the clerk." in received.body else "Talaria."))
        at_home, at_work = telegram.private(ann), other.private(same_ann)
        async with running(program):
            await at_home.says(ann, "who is there?")
            await at_work.says(same_ann, "who is there?")
            async with asyncio.timeout(LIMIT):
                await at_home.wait_for(lambda message: message.text == "Talaria.")
                await at_work.wait_for(lambda message: message.text == "Clerk.")
