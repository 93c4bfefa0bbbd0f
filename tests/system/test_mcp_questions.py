"""Questions of a real MCP server, answered, declined and cancelled by a person in the terminal and in a chat."""

import re
from pathlib import Path

from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import opened, ready, say
from tests.system.test_gateway_process import running
from tests.tools.mcp.warm_servers import settings_of

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.telegram_server import InlineKeyboardButton, Message, TelegramServer

BOOK = Say(calls=[Ask("mcp_tables_book", {})])


def settings() -> str:
    """Return the settings for the server that asks."""
    return f'[approval]\nmode = "off"\n{settings_of("tables", "tests.tools.mcp.asking_server")}'


def results(server: ModelServer) -> list[str]:
    """Return the tool results in the longest request to the model."""
    messages = max((received.json["messages"] for received in server.received), key=len)
    return [message["content"].splitlines()[1] for message in messages if message["role"] == "tool"]


async def test_terminal_asks_the_questions_of_an_mcp_server(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server, settings())
    server.answer_when(lambda received: received.is_title_request, Say("A title"))
    server.script(BOOK, BOOK, BOOK, Say("All done."))
    async with opened(program) as screen:
        await ready(screen)
        await say(screen, "book a table")
        await screen.wait_for("The MCP server tables asks: Which table would you like?")
        await screen.wait_for("(1 of 2)")
        await screen.type("2")  # something else
        await screen.wait_for("answer ❯")
        await say(screen, "4")
        await screen.wait_for("❯ 1. window")
        await screen.type("2")
        await screen.wait_for(re.compile(r"(^✓ mcp_tables_book.*){1}❯ 1\. Decline", re.MULTILINE | re.DOTALL))
        await screen.type("1")
        await screen.wait_for(re.compile(r"(^✓ mcp_tables_book.*){2}❯ 1\. Decline", re.MULTILINE | re.DOTALL))
        await screen.press("esc")
        await screen.wait_for("All done.")
    assert results(server) == [
        "Booked for 4 in the garden.",
        "The person chose to decline.",
        "The person chose to cancel.",
    ]


async def test_chat_asks_the_questions_of_an_mcp_server(tmp_path: Path, server: ModelServer) -> None:
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'{settings()}[access]\nowners = ["telegram:{ann.id}"]\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        chat = telegram.private(ann)

        async def wait_for_button(label: str) -> tuple[Message, InlineKeyboardButton]:
            """Return a question that hasn't been seen yet, and its button with this label."""
            found = await chat.wait_for(lambda one: one not in seen and any(label in it.text for it in one.buttons))
            seen.append(found)
            return found, next(button for button in found.buttons if label in button.text)

        seen: list[Message] = []
        server.answer_when(lambda received: received.is_title_request, Say("A title"))
        server.script(BOOK, BOOK, Say("All done."), BOOK)
        async with running(program):
            await chat.says(ann, "book a table")
            await chat.presses(ann, *await wait_for_button("Something else"))
            await chat.wait_until(lambda: sum("(1 of 2)" in one.text for one in chat.answers) == 2)
            await chat.says(ann, "4")
            await chat.presses(ann, *await wait_for_button("garden"))
            await chat.presses(ann, *await wait_for_button("Decline"))
            await chat.wait_for(lambda one: one.text == "All done.")
            assert results(server) == ["Booked for 4 in the garden.", "The person chose to decline."]
            await chat.says(ann, "another one")
            await wait_for_button("Decline")
            await chat.says(ann, "/stop")
            await chat.wait_for(lambda one: "Stopped." in one.text)
            server.script(Say("Nothing was booked."))
            await chat.says(ann, "and now?")
            await chat.wait_for(lambda one: one.text == "Nothing was booked.")
    assert "Booked for" not in str(server.received[-1].json["messages"][-3:])
