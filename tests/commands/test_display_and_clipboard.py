"""Display options, clipboard and attachments, and information about the program."""

import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, RecordingScreen, open_chat_client

from talaria.commands.clipboard import find_code_blocks
from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.core.messages import Image
from talaria.testing.model_server import ModelServer, Say

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "
REPLY = "Try this:\n\n```sh\nls -l\n```\n\nor\n\n~~~\ndir\n```\n~~~\n"
SECRETS = "OPENAI_API_KEY=sk-very-secret-indeed\n"


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server, secrets=SECRETS) as client:
        yield client


@pytest.fixture
def screen(client: ChatClient) -> RecordingScreen:
    assert client.screen is not None
    return client.screen


async def test_verbose_cycles_through_levels_or_sets_one(client: ChatClient) -> None:
    levels = []
    for _ in range(4):
        await client.use("/verbose")
        levels.append(client.surface.display.progress)
    assert levels == ["verbose", "off", "new", "all"]
    await client.use("/verbose OFF")
    assert client.surface.display.progress == "off"
    assert await client.use("/verbose loud") == "Unknown level `loud`. Choose one of off, new, all, verbose."
    assert [level for level, _ in await client.offers("verbose")] == ["off", "new", "all", "verbose"]


async def test_footer_command_toggles_or_sets_the_footer(client: ChatClient) -> None:
    await client.use("/footer")
    assert client.surface.display.footer
    await client.use("/footer on")
    assert client.surface.display.footer
    await client.use("/footer")
    assert not client.surface.display.footer
    assert await client.use("/footer maybe") == "Use `on` or `off`, not `maybe`."


async def test_theme_is_applied_and_saved(client: ChatClient, screen: RecordingScreen) -> None:
    assert "The theme is `dark`" in await client.use("/theme")
    await client.use("/theme light")
    assert screen.theme == "light"
    assert client.application.settings.cli.theme == "light"
    assert "From the next start," in await client.use("/theme auto")
    assert (screen.theme, client.application.settings.cli.theme) == ("light", "auto")
    await client.use("/theme light")
    assert "There is no theme `pink`" in await client.use("/theme pink")
    assert client.application.settings.cli.theme == "light"


async def test_copy_copies_the_last_reply_or_a_code_block_of_it(
    client: ChatClient, screen: RecordingScreen, server: ModelServer
) -> None:
    assert await client.use("/copy") == "There is no reply to copy yet."
    server.script(Say(REPLY))
    await client.say("how?")
    await client.use("/copy")
    await client.use("/copy 2")
    client.surface.answers = [0, None]
    await client.use("/copy code")
    assert await client.use("/copy code") == ""
    assert screen.copied == [REPLY.strip(), "dir\n```", "ls -l"]
    assert client.surface.questions == [("Which code block?", ("ls -l", "dir"))] * 2
    assert "no code block 3" in await client.use("/copy 3")
    assert "`/copy` copies" in await client.use("/copy that")


async def test_copy_code_of_a_reply_without_code_is_refused(client: ChatClient, screen: RecordingScreen) -> None:
    await client.say("hi")
    assert await client.use("/copy code") == "The last reply has no code block."
    assert await client.use("/copy 1") == "The last reply has no code block."
    assert screen.copied == []


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("no code", []),
        ("```py\na = 1\n\nb = 2\n```", ["a = 1\n\nb = 2"]),
        ("````\n```\ninner\n```\n````\n", ["```\ninner\n```"]),
        ("```\nnever closed\n", ["never closed"]),
        ("```inline``` and\n```\nreal\n```", ["real"]),
        ("```\n```\n```\nsecond\n```", ["", "second"]),
    ],
)
def test_code_blocks_of_a_text_are_found(text: str, blocks: list[str]) -> None:
    assert find_code_blocks(text) == blocks


async def test_pasted_text_goes_to_the_input_line_and_an_image_is_attached(
    client: ChatClient, screen: RecordingScreen
) -> None:
    assert await client.use("/paste") == "The clipboard is empty, or it can't be reached from here."
    screen.clipboard = "some words"
    assert await client.use("/paste") == ""
    screen.clipboard = Image("shot.png")
    assert "will be sent" in await client.use("/paste")
    assert (screen.filled, screen.attached) == (["some words"], [Image("shot.png")])


@pytest.mark.parametrize(
    "typed", ["a picture.png", "'a picture.png'", "a\\ picture.png", '"~/work/a picture.png"', "FILE"]
)
async def test_image_is_attached_for_every_spelling_of_its_path(
    client: ChatClient, screen: RecordingScreen, typed: str
) -> None:
    file = client.active_session.chat.workspace.folder / "a picture.png"
    file.write_bytes(PNG)
    address = file.as_uri()
    assert "`a picture.png` will be sent with your next message." in await client.use(
        f"/image {address if typed == 'FILE' else typed}"
    )
    assert screen.attached == [Image(str(file), "image/png")]


async def test_image_type_is_detected_from_the_content_of_the_file(client: ChatClient, screen: RecordingScreen) -> None:
    folder = client.active_session.chat.workspace.folder
    (folder / "really.txt").write_bytes(WEBP)
    (folder / "not.png").write_text("just text")
    await client.use("/image really.txt")
    assert screen.attached == [Image(str(folder / "really.txt"), "image/webp")]
    assert "It takes PNG, JPEG, GIF and WebP images" in await client.use("/image not.png")
    for typed in ("nowhere.png", "~nobody-here/x.png", "x" * 5_000, "a\0b", "'open"):
        assert "There is no file" in await client.use(f"/image {typed}")
    assert "Name a file" in await client.use("/image")


async def test_quit_and_its_aliases_leave_the_terminal(client: ChatClient, screen: RecordingScreen) -> None:
    for name in ("/quit", "/exit", "/q"):
        screen.left = False
        await client.use(name)
        assert screen.left


async def test_whoami_shows_owner_status_chat_and_session(tmp_path: Path, server: ModelServer) -> None:
    chat = Address("telegram", "42", "group", thread_id="7")
    async with open_chat_client(tmp_path, server, chat=chat, key="agent:main:telegram:group:42:7") as client:
        shown = await client.use("/whoami", author=Author("Eve", owner=False))
        assert "You are Eve, not the owner of this agent." in shown
        assert "You are in `telegram`, group chat `42`, thread `7`." in shown
        assert f"`{client.active_session.session_id}`, bound to `agent:main:telegram:group:42:7`." in shown
        assert "the owner of this agent" in await client.use("/whoami")


async def test_config_shows_sets_and_resets_settings(client: ChatClient) -> None:
    assert "- `model.provider` = `mine`\n" in await client.use("/config")
    assert "- `goals.max_turns` = `20`: Maximum number of turns of a goal." in await client.use(
        "/config goals.max_turns"
    )
    assert "- `goals.max_tokens` = `0`" in await client.use("/config goals")
    shown = await client.use("/config goals.max_turns 5")
    assert shown == "`goals.max_turns` is now `5`. It takes effect from the next conversation."
    assert client.application.settings.goals.max_turns == 5
    assert "- `goals.max_turns` = `5`" in await client.use("/config")
    assert "back at its default" in await client.use("/config goals.max_turns default")
    assert client.application.settings.goals.max_turns == 20
    assert "next start" in await client.use("/config log.level debug")


async def test_config_refuses_invalid_values_secrets_and_guests(client: ChatClient) -> None:
    assert "Did you mean `goals.max_turns`?" in await client.use("/config goals.max_turn")
    assert "goals.max_turns" in await client.use("/config goals.max_turns many")
    assert client.application.settings.goals.max_turns == 20
    for typed in ("/config OPENAI_API_KEY", "/config OPENAI_API_KEY sk-another"):
        assert "Secrets can't be shown or typed here" in await client.use(typed)
    assert "Only the owner" in await client.use("/config", author=Author("eve", owner=False))
    keys = [key for key, _ in await client.offers("config")]
    assert "goals.max_turns" in keys


async def test_changed_model_setting_applies_to_the_next_session(client: ChatClient, server: ModelServer) -> None:
    await client.use("/config model.name other")
    await client.say("here")
    await client.active_session.reset_session()
    await client.say("there")
    assert [received.json["model"] for received in server.received] == ["scripted", "other"]


async def test_version_command_shows_the_version_of_the_program(client: ChatClient) -> None:
    assert await client.use("/version") == f"Talaria {client.application.identity.version}"


async def test_debug_shows_information_for_a_report_without_secrets(client: ChatClient, server: ModelServer) -> None:
    await client.use("/config store.url postgresql://me:hidden-word@db.test/talaria")
    await client.say("my private words")
    log = logging.getLogger("talaria.test")
    log.warning("the roof leaks, said sk-very-secret-indeed")
    log.info("all is well")
    shown = await client.use("/debug")
    assert shown.startswith("```\ntalaria   ")
    assert f"python    {sys.version.split()[0]} on" in shown
    assert "profile   default, SQLite" in shown
    assert "model     mine:scripted" in shown
    assert f"session   {client.active_session.session_id}, 2 messages" in shown
    assert "the roof leaks" in shown
    for private in ("hidden-word", "sk-very-secret", "my private words", "all is well"):
        assert private not in shown


async def test_terminal_commands_are_refused_in_chats(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, chat=Address("telegram", "42")) as client:
        for name in ("theme", "copy", "paste", "image", "quit"):
            assert await client.use(f"/{name}") == f"`/{name}` works only in the terminal."
