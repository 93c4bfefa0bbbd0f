"""Commands for a running turn: `/queue`, `/steer`, `/approve` and `/deny`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import Desk, open_desk

from talaria.commands.command import Author
from talaria.core.events import ApprovalAsked
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

DANGEROUS = Ask("terminal", {"command": "rm -rf *"})


@pytest.fixture
async def desk(tmp_path: Path, server: ModelServer) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path, server) as desk:
        (tmp_path / "work" / "build").mkdir()
        yield desk


async def test_queued_message_waits_for_the_end_of_the_running_turn(desk: Desk, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]))
    assert await desk.use("/queue first") == ""
    await _until_asked(desk)
    assert await desk.use("/queue second *thing*") == "Queued after the running turn:\n\n1. second \\*thing\\*"
    shown = await desk.use("/queue third")
    assert shown.endswith("2. third")
    assert await desk.use("/queue") == shown
    await desk.use("/deny")
    await desk.active_session.chat.conversation.settled()
    sent = [text for role, text in await desk.transcript() if role == "user"]
    assert sent == ["first", "second *thing*", "third"]
    assert await desk.use("/queue") == "The queue is empty."


@pytest.mark.slow
async def test_steered_text_joins_the_running_turn(desk: Desk, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("In French then."))
    await desk.use("/queue go")
    await _until_asked(desk)
    assert "joins the running turn" in await desk.use("/steer in French")
    await desk.use("/approve")
    await desk.active_session.chat.conversation.settled()
    assert server.received[-1].json["messages"][-1]["content"] == "in French"
    assert len(server.received) == 2


async def test_steer_without_a_running_turn_sends_a_message(desk: Desk, server: ModelServer) -> None:
    assert await desk.use("/steer hello") == ""
    await desk.active_session.chat.conversation.settled()
    assert await desk.transcript() == [("user", "hello"), ("assistant", "ok")]
    assert "Add the text for the running turn" in await desk.use("/steer")


@pytest.mark.slow
async def test_approve_allows_the_call_once(desk: Desk, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("Gone."))
    await desk.use("/queue clean up")
    await _until_asked(desk)
    assert await desk.use("/approve") == "Allowed this time: `terminal`."
    await desk.active_session.chat.conversation.settled()
    assert not (desk.active_session.chat.workspace.folder / "build").exists()
    assert await desk.use("/approve") == "Nothing is waiting for approval."


@pytest.mark.slow
async def test_call_approved_for_the_session_is_not_asked_about_again(desk: Desk, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("Gone."), Say(calls=[DANGEROUS]), Say("Still gone."))
    await desk.use("/queue clean up")
    await _until_asked(desk)
    assert "for this conversation" in await desk.use("/approve session")
    await desk.active_session.chat.conversation.settled()
    await desk.say("again")
    assert len([event for event in desk.events if isinstance(event, ApprovalAsked)]) == 1


@pytest.mark.parametrize(
    ("typed", "reason"), [("/deny", "the user refused."), ("/deny once", "refused: once."), ("/deny Use git.", "git.")]
)
async def test_deny_refuses_the_call_and_gives_the_agent_the_reason(
    desk: Desk, server: ModelServer, typed: str, reason: str
) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("All right."))
    await desk.use("/queue clean up")
    await _until_asked(desk)
    assert await desk.use(typed) == "Denied: `terminal`."
    await desk.active_session.chat.conversation.settled()
    assert (desk.active_session.chat.workspace.folder / "build").exists()
    assert reason in server.received[-1].json["messages"][-1]["content"]
    assert await desk.use("/deny") == "Nothing is waiting for approval."


async def test_approve_does_not_answer_a_question_of_the_agent(desk: Desk, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("clarify", {"question": "Red or blue?"})]), Say("Blue."))
    await desk.use("/queue paint it")
    questions = desk.active_session.chat.questions
    await until(lambda: bool(questions.waiting))
    assert await desk.use("/approve") == "Nothing is waiting for approval."
    questions.answer(questions.waiting[0], "blue")
    await desk.active_session.chat.conversation.settled()


async def test_approve_is_for_the_owner_and_accepts_only_known_scopes(desk: Desk, server: ModelServer) -> None:
    stranger = Author("eve", owner=False)
    assert "Only the owner" in await desk.use("/approve always", author=stranger)
    assert "Only the owner" in await desk.use("/deny", author=stranger)
    assert "Unknown scope `forever`. Choose one of once, session, always." in await desk.use("/approve forever")
    assert [word for word, _ in await desk.offers("approve")] == ["once", "session", "always"]


async def _until_asked(desk: Desk) -> None:
    await until(lambda: bool(desk.active_session.chat.questions.approvals))
