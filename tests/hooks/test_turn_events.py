"""Hook events for turns, commands and sessions."""

from pathlib import Path

from tests.commands.command_fixture import open_chat_client
from tests.hooks.hook_folders import notes, wait_for_notes, write_hook

from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.testing.model_server import Ask, ModelServer, Say, overloaded


def hooks_of(home: Path) -> Path:
    """Return the hooks folder of the client's profile."""
    return home / "home" / "profiles" / "default" / "hooks"


async def test_turn_sends_events_for_its_start_steps_and_end(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(hooks_of(tmp_path), "notes")
    server.script(Say(calls=[Ask("list_files", {})]), Say("Nothing there."))
    chat = Address("matrix", "!room", thread_id="7")
    async with open_chat_client(tmp_path, server, chat=chat, key="agent:main:matrix:private:!room:7") as client:
        await client.say("look around")
        (end,) = await wait_for_notes(folder, "agent:end")
        session_id = client.active_session.session_id
    events = notes(folder)
    assert [event for event, _ in events] == [
        "session:start",
        "agent:start",
        *["agent:step"] * 3,
        "agent:end",
    ]
    for _, facts in events:
        assert (facts["session_id"], facts["platform"], facts["chat_id"]) == (session_id, "matrix", "!room")
        assert (facts["thread_id"], facts["session_key"]) == ("7", "agent:main:matrix:private:!room:7")
    steps = [facts for event, facts in events if event == "agent:step"]
    assert [(one["step"], one["kind"]) for one in steps] == [(1, "model"), (2, "tool"), (3, "model")]
    assert (steps[0]["model"], steps[1]["tool"], steps[1]["failed"]) == ("scripted", "list_files", False)
    assert (end["outcome"], end["text"], end["steps"]) == ("answered", "Nothing there.", 3)
    assert events[1][1]["text"] == "look around"
    assert end["turn_id"] == events[1][1]["turn_id"] != ""


async def test_failed_turn_sends_an_end_event(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(hooks_of(tmp_path), "notes", "events: agent:end\n")
    server.script(*[overloaded()] * 20)
    async with open_chat_client(tmp_path, server, "[agent]\nmax_turn_seconds = 1\n") as client:
        await client.say("hello")
        (end,) = await wait_for_notes(folder, "agent:end")
    assert end["outcome"] in {"out_of_budget", "failed"}
    assert end["text"]


async def test_long_texts_are_cut_for_hooks(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(hooks_of(tmp_path), "notes", "events: agent:end\n")
    server.script(Say("x" * 10_000))
    async with open_chat_client(tmp_path, server) as client:
        await client.say("hello")
        (end,) = await wait_for_notes(folder, "agent:end")
    assert end["text"] == "x" * 3999 + "…"


async def test_disabled_and_broken_hooks_subscribe_to_no_turn(tmp_path: Path, server: ModelServer) -> None:
    write_hook(hooks_of(tmp_path), "off", "events: ['*']\nenabled: false\n")
    write_hook(hooks_of(tmp_path), "broken", "nonsense")
    async with open_chat_client(tmp_path, server) as client:
        assert client.application.hooks.turn_subscriber() is None
        await client.say("hello")


async def test_allowed_command_sends_an_event_with_its_full_name(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(hooks_of(tmp_path), "notes", "events: command:*\n")
    async with open_chat_client(tmp_path, server, chat=Address("matrix", "!room")) as client:
        await client.use("/title Harbour lights", author=Author("Ann", owner=True, id="@ann"))
        await client.use("/config", author=Author("Bob", owner=False, id="@bob"))
        await client.use("/nothing")
        await client.use("/status", author=Author("Bob", owner=False, id="@bob"))
        await wait_for_notes(folder, "command:status")
    (title, facts), (status, _) = notes(folder)
    assert (title, status) == ("command:title", "command:status")
    assert (facts["command"], facts["text"], facts["owner"]) == ("title", "Harbour lights", True)
    assert (facts["user_id"], facts["user_name"], facts["chat_id"]) == ("@ann", "Ann", "!room")


async def test_new_session_sends_end_reset_and_start_events(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(hooks_of(tmp_path), "notes", "events: session:*\n")
    async with open_chat_client(tmp_path, server) as client:
        await client.say("hello")
        before = client.active_session.session_id
        await client.use("/new")
        (reset,) = await wait_for_notes(folder, "session:reset")
        (end,) = await wait_for_notes(folder, "session:end")
        started = [facts["session_id"] for facts in await wait_for_notes(folder, "session:start", times=2)]
        assert started == [before, client.active_session.session_id]
        assert (end["session_id"], end["reason"], end["source"]) == (before, "command", "cli")
        assert (reset["previous_session_id"], reset["session_id"]) == (before, client.active_session.session_id)
