"""`/branch`, `/undo` and `/retry`: no message is lost, and the prompt prefix stays the same."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.contracts.turns import Summary
from talaria.core.addresses import Address
from talaria.core.events import ApprovalAsked
from talaria.core.ids import SessionId
from talaria.core.messages import Image, Message, Text
from talaria.goals.goal import read_goal
from talaria.sessions.model_context import PREFIX_BREAK, SUMMARY, StoredSummary
from talaria.testing.model_server import Ask, ModelServer, Received, Say

PIXEL = Image(
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


async def _session(client: ChatClient, session_id: SessionId) -> Session:
    session = await client.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return session


def _without_answers(request: Received) -> bytes:
    """Return a request up to the end of its last message: the prefix of the next request."""
    return request.body[: request.body.index(b"]", request.body.rindex(b'"role"'))]


async def test_branch_continues_the_session_and_the_original_stays_unchanged(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("one")
        await client.use("/title Trip")
        before = client.active_session.session_id
        assert await client.use("/branch") == (
            "You're now in the branch *Trip (branch)*. `/resume Trip` returns to the original."
        )
        assert client.active_session.session_id != before
        await client.say("two")
        assert [text for role, text in await client.transcript() if role == "user"] == ["one", "two"]
        await client.use("/resume Trip")
        assert client.active_session.session_id == before
        assert [text for role, text in await client.transcript() if role == "user"] == ["one"]
        await client.use("/branch By sea")
        assert (await _session(client, client.active_session.session_id)).title == "By sea"
        await client.use("/resume Trip")
        assert "*Trip (branch 2)*" in await client.use("/branch")


async def test_empty_session_cannot_be_branched_undone_or_retried(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        here = client.active_session.session_id
        assert "nothing to branch from" in await client.use("/branch")
        assert "nothing to undo" in await client.use("/undo")
        assert "nothing to undo" in await client.use("/retry")
        assert client.active_session.session_id == here


async def test_undo_removes_the_last_exchange_and_the_original_can_be_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("one")
        await client.say("two, *of course*")
        await client.use("/title Trip")
        before = client.active_session.session_id
        shown = await client.use("/undo")
        assert "Undone: “two, \\*of course\\*”." in shown
        assert f"`/resume {before}`" in shown
        assert await client.transcript() == [("user", "one"), ("assistant", "ok")]
        assert client.screen is not None
        assert client.screen.filled == ["two, *of course*"]
        assert (await _session(client, client.active_session.session_id)).title == "Trip"
        assert (await _session(client, before)).title == "Trip (before undo)"
        await client.use(f"/resume {before}")
        assert len(await client.transcript()) == 4


async def test_undo_removes_several_exchanges_but_not_more_than_exist(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        for text in ("one", "two", "three"):
            await client.say(text)
        here = client.active_session.session_id
        assert await client.use("/undo 4") == "There are only 3 exchanges to undo here."
        assert "isn't a whole number" in await client.use("/undo many")
        assert client.active_session.session_id == here
        assert "Undone: 2 exchanges" in await client.use("/undo 2")
        assert await client.transcript() == [("user", "one"), ("assistant", "ok")]
        await client.use("/undo")
        assert await client.transcript() == []
        assert "nothing to undo" in await client.use("/undo")


async def test_second_undo_removes_messages_from_before_the_branch(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        for text in ("one", "two", "three"):
            await client.say(text)
        await client.use("/title Trip")
        first = client.active_session.session_id
        await client.use("/undo")
        second = client.active_session.session_id
        assert f"`/resume {first}`" in await client.use("/undo")
        third = await _session(client, client.active_session.session_id)
        assert (third.parent_id, third.title) == (first, "Trip")
        assert await client.application.store.read(lambda tx: tx.sessions.get(second)) is None
        await client.say("four")
        assert [text for role, text in await client.transcript() if role == "user"] == ["one", "four"]
        fourth = client.active_session.session_id
        await client.use("/undo 2")
        assert await client.transcript() == []
        assert (await _session(client, fourth)).title == "Trip (before undo 2)"


async def test_undo_in_a_chat_rebinds_the_chat_to_the_new_session(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, chat=Address("telegram", "1"), key="k") as client,
    ):
        await client.say("one")
        await client.use("/undo")
        assert await client.transcript() == []
        here = client.active_session.session_id
        binding = await client.application.store.read(lambda tx: tx.bindings.get("k"))
        assert binding is not None
        assert binding.session_id == here


async def test_requests_after_undo_begin_with_the_same_bytes(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(
            Say("first"), Say(calls=[Ask("todo", {"steps": [{"text": "look"}]})]), Say("second"), Say("third")
        )
        await client.say("one")
        before = server.received[-1]
        await client.say("two")
        await client.use("/undo")
        (tmp_path / "home/profiles/default/SOUL.md").write_text("Be somebody else.")
        await client.use("/branch")
        await client.say("three")
        after = server.received[-1]
        assert after.body.startswith(_without_answers(before))
        assert [message["content"] for message in after.json["messages"][1:]] == ["one", "first", "three"]
        assert after.json["tools"] == before.json["tools"]
        events = await client.application.store.read(
            lambda tx: tx.events.after(f"session:{client.active_session.session_id}", 0)
        )
        assert [event.kind for event in events if event.kind == PREFIX_BREAK] == []


async def test_summary_that_covers_undone_messages_is_dropped(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        for text in ("one", "two", "three"):
            await client.say(text)
        summary = StoredSummary(Summary(4, "They counted."), shown=True)
        here = client.active_session.session_id
        await client.application.store.write(lambda tx: SUMMARY.write(tx, here, summary))
        await client.use("/undo")
        await client.say("four")
        assert "They counted." in server.received[-1].body.decode()
        await client.use("/undo 2")
        await client.say("five")
        assert "They counted." not in server.received[-1].body.decode()
        assert [message["content"] for message in server.received[-1].json["messages"][1:]] == ["one", "ok", "five"]


async def test_retry_sends_the_last_message_again_with_its_images(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say("a cat"), Say("a dog"))
        await client.say("What is it?", PIXEL)
        before, first = client.active_session.session_id, server.received[-1]
        assert await client.use("/retry") == f"Asking again. `/resume {before}` has the earlier answer."
        await client.active_session.chat.conversation.wait_until_idle()
        assert await client.transcript() == [("user", "What is it?"), ("assistant", "a dog")]
        assert server.received[-1].body == first.body
        here = client.active_session.session_id
        stored = await client.application.store.read(lambda tx: tx.messages.load(here))
        assert stored[0].message.parts == (Text("What is it?"), PIXEL)


@pytest.mark.parametrize("command", ["/undo", "/branch"])
async def test_goal_is_copied_to_the_new_session_and_waits_for_the_next_turn(tmp_path: Path, command: str) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, lasting=False) as client:
        await client.use("/goal count to ten")
        await client.active_session.chat.conversation.wait_until_idle()
        await client.say("and in French")
        before = client.active_session.session_id
        calls = len(server.received)
        await client.use(command)
        here = client.active_session.session_id
        old, new = await client.application.store.read(
            lambda tx: (read_goal(tx, before).state, read_goal(tx, here).state)
        )
        assert old is not None
        assert new is not None
        assert (new.goal, new.status, new.pending, new.turns_used) == ("count to ten", "active", None, old.turns_used)
        assert new.id != old.id
        session = await _session(client, here)
        original = await _session(client, before)
        assert session.usage.calls - new.usage.calls == original.usage.calls - old.usage.calls
        assert old.status == ("paused" if command == "/undo" else "active")
        await client.active_session.chat.conversation.wait_until_idle()
        assert len(server.received) == calls


async def test_undo_of_the_first_turn_of_a_goal_removes_the_goal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, lasting=False) as client:
        await client.say("hi")
        await client.use("/goal count to ten")
        await client.active_session.chat.conversation.wait_until_idle()
        await client.use("/undo")
        here = client.active_session.session_id
        assert (await client.application.store.read(lambda tx: read_goal(tx, here))).state is None
        assert await client.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_a_step_of_a_goal_counts_as_an_exchange(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("hi")
        here = client.active_session.session_id
        step = Message(role="user", parts=(Text("Go on."),), at=datetime.now(UTC), author="goal")
        await client.application.store.write(lambda tx: tx.messages.append(here, [step]))
        await client.use("/undo")
        assert await client.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_session_stays_unchanged_if_the_branch_cannot_be_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("hi")
        await client.use("/title Trip")
        here = client.active_session.session_id
        await client.use("/config model.provider nowhere")
        for command in ("/undo", "/retry", "/branch"):
            assert "nowhere" in await client.use(command)
        assert client.active_session.session_id == here
        assert (await _session(client, here)).title == "Trip"
        assert len(await client.application.store.read(lambda tx: tx.sessions.find(SessionFilter()))) == 1


@pytest.mark.slow
async def test_branch_can_read_stored_outputs_of_the_original(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say(calls=[Ask("terminal", {"command": "seq 20000"})]), Say("counted"))
        await client.say("count")
        result = server.received[-1].json["messages"][-1]["content"]
        (file,) = re.findall(r"/\S+/outputs/[^\s;,\]]+", result)
        await client.use("/branch")
        server.script(Say(calls=[Ask("read_file", {"path": file, "first_line": 12345})]), Say("read"))
        await client.say("and the middle?")
        assert "12345" in server.received[-1].json["messages"][-1]["content"]
        assert not [event for event in client.events if isinstance(event, ApprovalAsked)]
