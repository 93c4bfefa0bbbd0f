"""`/approvals`, and approval rules in sessions: by tool, command, folder, surface and person."""

from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked, ToolAnswered, ToolRefused
from talaria.core.messages import Text
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.wait import until

INSTALL = Say(calls=[Ask("terminal", {"command": "pip install ./nothing-here --help"})])


async def install_asks(client: ChatClient, server: ModelServer, answer: str = "") -> bool:
    """Let the agent install a package, answer the approval, and return whether there was one."""
    server.script(INSTALL, Say("Done."))
    before = len(client.events)
    await client.use("/queue install it")

    def questions() -> list[ApprovalAsked]:
        return [event for event in client.events[before:] if isinstance(event, ApprovalAsked)]

    def results() -> list[ToolAnswered | ToolRefused]:
        return [event for event in client.events[before:] if isinstance(event, ToolAnswered | ToolRefused)]

    await until(lambda: questions() or results())
    if questions() and answer:
        client.active_session.questions.answer(questions()[0].id, answer)
    elif questions():
        await client.use("/deny")
    await client.active_session.chat.conversation.wait_until_idle()
    return bool(questions())


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["session", "always"])
async def test_revoked_grant_is_asked_for_again(tmp_path: Path, server: ModelServer, scope: str) -> None:
    async with open_chat_client(tmp_path, server) as client:
        assert await install_asks(client, server, scope)
        assert not await install_asks(client, server)
        shown = await client.use("/approvals")
        assert ("always" if scope == "always" else "in this conversation") in shown
        grant = next(line.split("`")[1] for line in shown.splitlines() if "pip install" in line)
        revoked = await client.use(f"/approvals revoke {grant}")
        assert revoked.startswith("Revoked: ")
        assert "pip install" in revoked
        assert "Nothing is approved permanently." in await client.use("/approvals")
        assert "No single approval matches" in await client.use(f"/approvals revoke {grant}")
        assert await install_asks(client, server)


async def test_only_the_owner_can_revoke_a_grant(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        guest = type(client.author)(name="Eve", owner=False, id="7")
        assert "Only the owner" in await client.use("/approvals revoke ab", author=guest)


RULES = """
[approval]
mode = "off"
[access]
owners = ["telegram:1"]
[people.anna]
ids = ["telegram:7"]
[rules.no-lists]
action = "deny"
"""
CASES = [
    ('tool = "list_*"', True),
    ('tool = "read_*"', False),
    ('command = "ls"', False),
    ('folder = "{work}"', True),
    ('folder = "{work}/below"', False),
    ('surface = "telegram"', True),
    ('surface = "cli"', False),
    ('person = "owner"', True),
    ('person = "anna"', False),
    ('surface = "telegram"\nperson = "owner"\ntool = "list_files"', True),
    ('surface = "telegram"\nperson = "anna"', False),
]


@pytest.mark.parametrize(("fields", "denied"), CASES)
async def test_rule_applies_only_if_all_its_fields_match(
    tmp_path: Path, server: ModelServer, fields: str, *, denied: bool
) -> None:
    settings = RULES + fields.format(work=tmp_path / "work")
    server.script(Say(calls=[Ask("list_files", {})]), Say("Done."))
    async with open_chat_client(
        tmp_path, server, settings, chat=Address("telegram", "1", user_id="1"), key="one"
    ) as client:
        await client.active_session.put(Text("list"), sender="telegram:1")
        await client.active_session.chat.conversation.wait_until_idle()
        refused = [event for event in client.events if isinstance(event, ToolRefused)]
    assert bool(refused) is denied


async def test_rule_for_a_command_applies_to_the_terminal_tool(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "ls"}), Ask("terminal", {"command": "pwd"})]), Say("Done."))
    async with open_chat_client(tmp_path, server, RULES + 'command = "ls"') as client:
        await client.say("list")
        refused = [event.summary for event in client.events if isinstance(event, ToolRefused)]
    assert refused == ["terminal: ls"]


async def test_rules_are_listed_with_their_fields(tmp_path: Path, server: ModelServer) -> None:
    more = 'command = "git push"\nsurface = "telegram"\n[rules.all]\naction = "ask"\n'
    async with open_chat_client(tmp_path, server, RULES + more) as client:
        shown = await client.use("/approvals")
    assert "- deny `no-lists`: command `git push`, surface `telegram`" in shown
    assert "- ask `all`: every call" in shown


async def test_terminal_applies_rules_written_before_and_during_its_first_turn(
    tmp_path: Path, server: ModelServer
) -> None:
    """The file is changed as another process does it, before a session's first turn and between two of its calls."""
    async with open_chat_client(tmp_path, server, "") as client:
        file = client.application.profile.config_file
        before = file.read_text()

        def write_rule(call: Received) -> Say:
            file.write_text(f'{before}[rules.no-pwd]\naction = "deny"\ncommand = "pwd"\n')
            return Say(calls=[Ask("terminal", {"command": "pwd"})])

        file.write_text(f'{before}[rules.no-ls]\naction = "deny"\ncommand = "ls"\n')
        server.script(Say(calls=[Ask("terminal", {"command": "ls"})]))
        server.answering(lambda call: Say("Done.") if "no-pwd" in file.read_text() else write_rule(call))
        await client.say("list")
        refused = [event.summary for event in client.events if isinstance(event, ToolRefused)]
    assert refused == ["terminal: ls", "terminal: pwd"]
