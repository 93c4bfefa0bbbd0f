"""`/rollback` and `/diff`: file changes of turns can be shown and undone."""

from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.core.events import Noticed
from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = pytest.mark.slow  # turns that change files start git


async def change(client: ChatClient, server: ModelServer, request: str, **files: str) -> None:
    """Run a turn in which the agent writes these files."""
    calls = [Ask("write_file", {"path": name, "content": text}) for name, text in files.items()]
    server.script(Say(calls=calls), Say("Done."))
    await client.say(request)


async def test_file_changes_of_a_turn_can_be_rolled_back(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        file = tmp_path / "work" / "plan"
        file.write_text("mine")
        await change(client, server, "make it better", plan="yours", more="new")
        await change(client, server, "make it worse", plan="worse")
        listed = await client.use("/rollback")
        assert "before “make it worse”" in listed
        assert "2. just now, before “make it better”" in listed
        assert await client.use("/rollback 2") == "Restored 1 file, removed 1 file. `/rollback 1` undoes this."
        assert (file.read_text(), (tmp_path / "work" / "more").exists()) == ("mine", False)
        await client.use("/rollback 1")
        assert file.read_text() == "worse"


async def test_file_changes_of_commands_and_code_can_be_rolled_back(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[approval]\nmode = 'off'\n") as client:
        work = tmp_path / "work"
        server.script(
            Say(calls=[Ask("terminal", {"command": "echo one > one"})]),
            Say(
                calls=[
                    Ask(
                        "execute_code",
                        {"code": "open('two', 'w').write('2')\ntools.write_file(path='three', content='3')"},
                    )
                ]
            ),
            Say("Done."),
        )
        await client.say("three files")
        assert sorted(file.name for file in work.iterdir()) == ["one", "three", "two"]
        assert "removed 3 files" in await client.use("/rollback 1")
        assert list(work.iterdir()) == []


async def test_rollback_asks_about_edits_by_hand(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        notes = tmp_path / "work" / "notes"
        await change(client, server, "write a plan", plan="agent")
        notes.write_text("hand")
        client.surface.answers = [2, None, 1]
        for _ in range(2):
            assert await client.use("/rollback 1") == "Nothing was changed."
        assert "- notes" in client.surface.questions[0][0]
        assert "removed 1 file" in await client.use("/rollback 1")
        assert (notes.read_text(), (tmp_path / "work" / "plan").exists()) == ("hand", False)


async def test_diff_shows_changes_since_a_checkpoint(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        (tmp_path / "work" / "plan").write_text("one\n")
        await change(client, server, "make it two", plan="two\n")
        assert await client.use("/diff") == "```diff\n--- a/plan\n+++ b/plan\n@@ -1 +1 @@\n-one\n+two\n```"
        assert "There is no checkpoint `5`" in await client.use("/diff 5")


async def test_reading_takes_no_checkpoint(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say(calls=[Ask("list_files", {})]), Say("Nothing."))
        await client.say("what is here?")
        assert "There are no checkpoints" in await client.use("/rollback")


async def test_folder_too_large_for_checkpoints_is_reported_once_and_turns_continue(tmp_path: Path) -> None:
    settings = "[checkpoints]\nmax_files = 1\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, settings) as client:
        for name in ("a", "b"):
            (tmp_path / "work" / name).touch()
        await change(client, server, "write", c="1")
        await change(client, server, "write again", c="2")
        notices = [event.text for event in client.events if isinstance(event, Noticed)]
        assert [("checkpoints.max_files" in text) for text in notices] == [True]
        assert (tmp_path / "work" / "c").read_text() == "2"


async def test_checkpoints_can_be_switched_off(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, "[checkpoints]\nenabled = false\n") as client,
    ):
        await change(client, server, "write", a="1")
        assert "There are no checkpoints" in await client.use("/rollback")
