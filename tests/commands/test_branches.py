"""`/branch`, `/undo` and `/retry`: no message is lost, and the prompt prefix stays the same."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.commands.command_fixture import Desk, open_desk

from talaria.agent.context_window import Summary
from talaria.contracts.stores.sessions import Session, SessionFilter
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


async def _session(desk: Desk, session_id: SessionId) -> Session:
    session = await desk.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return session


def _without_answers(request: Received) -> bytes:
    """Return a request up to the end of its last message: the prefix of the next request."""
    return request.body[: request.body.index(b"]", request.body.rindex(b'"role"'))]


async def test_branch_continues_the_session_and_the_original_stays_unchanged(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("one")
        await desk.use("/title Trip")
        before = desk.active_session.session_id
        assert await desk.use("/branch") == (
            "You're now in the branch *Trip (branch)*. `/resume Trip` returns to the original."
        )
        assert desk.active_session.session_id != before
        await desk.say("two")
        assert [text for role, text in await desk.transcript() if role == "user"] == ["one", "two"]
        await desk.use("/resume Trip")
        assert desk.active_session.session_id == before
        assert [text for role, text in await desk.transcript() if role == "user"] == ["one"]
        await desk.use("/branch By sea")
        assert (await _session(desk, desk.active_session.session_id)).title == "By sea"
        await desk.use("/resume Trip")
        assert "*Trip (branch 2)*" in await desk.use("/branch")


async def test_empty_session_cannot_be_branched_undone_or_retried(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        here = desk.active_session.session_id
        assert "nothing to branch from" in await desk.use("/branch")
        assert "nothing to undo" in await desk.use("/undo")
        assert "nothing to undo" in await desk.use("/retry")
        assert desk.active_session.session_id == here


async def test_undo_removes_the_last_exchange_and_the_original_can_be_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("one")
        await desk.say("two, *of course*")
        await desk.use("/title Trip")
        before = desk.active_session.session_id
        shown = await desk.use("/undo")
        assert "Undone: “two, \\*of course\\*”." in shown
        assert f"`/resume {before}`" in shown
        assert await desk.transcript() == [("user", "one"), ("assistant", "ok")]
        assert desk.screen is not None
        assert desk.screen.filled == ["two, *of course*"]
        assert (await _session(desk, desk.active_session.session_id)).title == "Trip"
        assert (await _session(desk, before)).title == "Trip (before undo)"
        await desk.use(f"/resume {before}")
        assert len(await desk.transcript()) == 4


async def test_undo_removes_several_exchanges_but_not_more_than_exist(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        for text in ("one", "two", "three"):
            await desk.say(text)
        here = desk.active_session.session_id
        assert await desk.use("/undo 4") == "There are only 3 exchanges to undo here."
        assert "isn't a whole number" in await desk.use("/undo many")
        assert desk.active_session.session_id == here
        assert "Undone: 2 exchanges" in await desk.use("/undo 2")
        assert await desk.transcript() == [("user", "one"), ("assistant", "ok")]
        await desk.use("/undo")
        assert await desk.transcript() == []
        assert "nothing to undo" in await desk.use("/undo")


async def test_second_undo_removes_messages_from_before_the_branch(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        for text in ("one", "two", "three"):
            await desk.say(text)
        await desk.use("/title Trip")
        first = desk.active_session.session_id
        await desk.use("/undo")
        second = desk.active_session.session_id
        assert f"`/resume {first}`" in await desk.use("/undo")
        third = await _session(desk, desk.active_session.session_id)
        assert (third.parent_id, third.title) == (first, "Trip")
        assert await desk.application.store.read(lambda tx: tx.sessions.get(second)) is None
        await desk.say("four")
        assert [text for role, text in await desk.transcript() if role == "user"] == ["one", "four"]
        fourth = desk.active_session.session_id
        await desk.use("/undo 2")
        assert await desk.transcript() == []
        assert (await _session(desk, fourth)).title == "Trip (before undo 2)"


async def test_undo_in_a_chat_rebinds_the_chat_to_the_new_session(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, chat=Address("telegram", "1"), key="k") as desk:
        await desk.say("one")
        await desk.use("/undo")
        assert await desk.transcript() == []
        here = desk.active_session.session_id
        binding = await desk.application.store.read(lambda tx: tx.bindings.get("k"))
        assert binding is not None
        assert binding.session_id == here


async def test_requests_after_undo_begin_with_the_same_bytes(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(
            Say("first"), Say(calls=[Ask("todo", {"steps": [{"text": "look"}]})]), Say("second"), Say("third")
        )
        await desk.say("one")
        before = server.received[-1]
        await desk.say("two")
        await desk.use("/undo")
        (tmp_path / "home/profiles/default/SOUL.md").write_text("Be somebody else.")
        await desk.use("/branch")
        await desk.say("three")
        after = server.received[-1]
        assert after.body.startswith(_without_answers(before))
        assert [message["content"] for message in after.json["messages"][1:]] == ["one", "first", "three"]
        assert after.json["tools"] == before.json["tools"]
        events = await desk.application.store.read(
            lambda tx: tx.events.after(f"session:{desk.active_session.session_id}", 0)
        )
        assert [event.kind for event in events if event.kind == PREFIX_BREAK] == []


async def test_summary_that_covers_undone_messages_is_dropped(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        for text in ("one", "two", "three"):
            await desk.say(text)
        summary = StoredSummary(Summary(4, "They counted."), shown=True)
        here = desk.active_session.session_id
        await desk.application.store.write(lambda tx: SUMMARY.write(tx, here, summary))
        await desk.use("/undo")
        await desk.say("four")
        assert "They counted." in server.received[-1].body.decode()
        await desk.use("/undo 2")
        await desk.say("five")
        assert "They counted." not in server.received[-1].body.decode()
        assert [message["content"] for message in server.received[-1].json["messages"][1:]] == ["one", "ok", "five"]


async def test_retry_sends_the_last_message_again_with_its_images(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(Say("a cat"), Say("a dog"))
        await desk.say("What is it?", PIXEL)
        before, first = desk.active_session.session_id, server.received[-1]
        assert await desk.use("/retry") == f"Asking again. `/resume {before}` has the earlier answer."
        await desk.active_session.chat.conversation.settled()
        assert await desk.transcript() == [("user", "What is it?"), ("assistant", "a dog")]
        assert server.received[-1].body == first.body
        here = desk.active_session.session_id
        stored = await desk.application.store.read(lambda tx: tx.messages.load(here))
        assert stored[0].message.parts == (Text("What is it?"), PIXEL)


@pytest.mark.parametrize("command", ["/undo", "/branch"])
async def test_goal_is_copied_to_the_new_session_and_waits_for_the_next_turn(tmp_path: Path, command: str) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, lasting=False) as desk:
        await desk.use("/goal count to ten")
        await desk.active_session.chat.conversation.settled()
        await desk.say("and in French")
        before = desk.active_session.session_id
        calls = len(server.received)
        await desk.use(command)
        here = desk.active_session.session_id
        old, new = await desk.application.store.read(
            lambda tx: (read_goal(tx, before).state, read_goal(tx, here).state)
        )
        assert old is not None
        assert new is not None
        assert (new.goal, new.status, new.pending, new.turns_used) == ("count to ten", "active", None, old.turns_used)
        assert new.id != old.id
        session = await _session(desk, here)
        original = await _session(desk, before)
        assert session.usage.calls - new.usage.calls == original.usage.calls - old.usage.calls
        assert old.status == ("paused" if command == "/undo" else "active")
        await desk.active_session.chat.conversation.settled()
        assert len(server.received) == calls


async def test_undo_of_the_first_turn_of_a_goal_removes_the_goal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, lasting=False) as desk:
        await desk.say("hi")
        await desk.use("/goal count to ten")
        await desk.active_session.chat.conversation.settled()
        await desk.use("/undo")
        here = desk.active_session.session_id
        assert (await desk.application.store.read(lambda tx: read_goal(tx, here))).state is None
        assert await desk.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_a_step_of_a_goal_counts_as_an_exchange(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("hi")
        here = desk.active_session.session_id
        step = Message(role="user", parts=(Text("Go on."),), at=datetime.now(UTC), author="goal")
        await desk.application.store.write(lambda tx: tx.messages.append(here, [step]))
        await desk.use("/undo")
        assert await desk.transcript() == [("user", "hi"), ("assistant", "ok")]


async def test_session_stays_unchanged_if_the_branch_cannot_be_opened(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("hi")
        await desk.use("/title Trip")
        here = desk.active_session.session_id
        await desk.use("/config model.provider nowhere")
        for command in ("/undo", "/retry", "/branch"):
            assert "nowhere" in await desk.use(command)
        assert desk.active_session.session_id == here
        assert (await _session(desk, here)).title == "Trip"
        assert len(await desk.application.store.read(lambda tx: tx.sessions.find(SessionFilter()))) == 1


@pytest.mark.slow
async def test_branch_can_read_stored_outputs_of_the_original(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(Say(calls=[Ask("terminal", {"command": "seq 20000"})]), Say("counted"))
        await desk.say("count")
        result = server.received[-1].json["messages"][-1]["content"]
        (file,) = re.findall(r"/\S+/outputs/[^\s;,\]]+", result)
        await desk.use("/branch")
        server.script(Say(calls=[Ask("read_file", {"path": file, "first_line": 12345})]), Say("read"))
        await desk.say("and the middle?")
        assert "12345" in server.received[-1].json["messages"][-1]["content"]
        assert not [event for event in desk.events if isinstance(event, ApprovalAsked)]
