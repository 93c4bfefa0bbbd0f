"""A session in plan mode, handed off to a chat by another agent over MCP, approved there after a restart."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent
from tests.app.program_with_model import scripted_program, talk
from tests.system.test_gateway_process import running

from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.telegram_server import Message, TelegramServer
from talaria.testing.wait import LIMIT

pytestmark = pytest.mark.slow
QUESTION = "Carry out the plan?"


async def use(client: Client, name: str, **arguments: Any) -> Any:
    """Call a tool, which must succeed, and return its result."""
    result = await client.call_tool(name, arguments)
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    return json.loads(block.text)


async def test_plan_mode_survives_a_handoff_and_a_restart(tmp_path: Path, server: ModelServer) -> None:
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'[approval]\nmode = "off"\n[access]\nowners = ["telegram:{ann.id}"]\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        output = program.home / "work" / "result"
        write = Say(calls=[Ask("write_file", {"path": str(output), "content": "done"})])
        server.answer_when(lambda received: received.is_title_request, Say("A title"))
        server.script(write, Say("The plan: write the result."))
        planned = await talk(program, "chat", "--plan", "-q", "write the result")
        assert (planned.code, planned.out) == (0, "The plan: write the result.\n")
        assert "Plan mode is on" in str(server.received[-1].json["messages"][-1])

        chat = telegram.private(ann)
        refused: list[Message] = []

        async def wait_for_question() -> Message:
            return await chat.wait_for(lambda one: one not in refused and QUESTION in one.text and bool(one.buttons))

        async with running(program):
            await chat.says(ann, "/sethome")
            await chat.wait_until(lambda: bool(chat.answers))
            talaria = str(Path(program.environment()["PATH"].partition(":")[0]) / "talaria")
            parameters = StdioServerParameters(command=talaria, args=["mcp", "serve"], env=program.environment())
            async with asyncio.timeout(LIMIT), Client(parameters, cache=None) as client:
                sent = await use(client, "send_message", to="telegram", text="Greetings from another agent.")
                assert (sent["platform"], sent["gateway"]) == ("telegram", True)
                await chat.wait_for(lambda one: one.text == "Greetings from another agent.")
                listed = (await use(client, "list_conversations"))["data"]
                (session_id,) = [one["id"] for one in listed if one["source"] == "cli"]
                moved = await use(client, "hand_off", session_id=session_id, to="telegram")
                assert (moved["handoff"], moved["address"].split(":")[0]) == ("completed", "telegram")
            server.script(write, Say("As you like."))
            await chat.says(ann, "begin")
            question = await wait_for_question()
            refused.append(question)
            await chat.presses(ann, question, question.buttons[-1])
            await chat.wait_for(lambda one: one.text == "As you like.")
            assert not output.exists()
        server.script(write, Say("It is written."))
        async with running(program):
            await chat.says(ann, "now do it")
            question = await wait_for_question()
            await chat.presses(ann, question, question.buttons[0])
            await chat.wait_for(lambda one: one.text == "It is written.")
        assert output.read_text() == "done"
