"""Commands for a running turn: `/queue`, `/steer`, `/approve` and `/deny`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.core.events import ApprovalAsked
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

DANGEROUS = Ask("terminal", {"command": "rm -rf *"})


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server) as client:
        (tmp_path / "work" / "build").mkdir()
        yield client


async def test_queued_message_waits_for_the_end_of_the_running_turn(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]))
    assert await client.use("/queue first") == ""
    await _until_asked(client)
    assert await client.use("/queue second *thing*") == "Queued after the running turn:\n\n1. second \\*thing\\*"
    shown = await client.use("/queue third")
    assert shown.endswith("2. third")
    assert await client.use("/queue") == shown
    await client.use("/deny")
    await client.active_session.chat.conversation.wait_until_idle()
    sent = [text for role, text in await client.transcript() if role == "user"]
    assert sent == ["first", "second *thing*", "third"]
    assert await client.use("/queue") == "The queue is empty."


@pytest.mark.slow
async def test_steered_text_joins_the_running_turn(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("In French then."))
    await client.use("/queue go")
    await _until_asked(client)
    assert "joins the running turn" in await client.use("/steer in French")
    await client.use("/approve")
    await client.active_session.chat.conversation.wait_until_idle()
    assert server.received[-1].json["messages"][-1]["content"] == "in French"
    assert len(server.received) == 2


async def test_steer_without_a_running_turn_sends_a_message(client: ChatClient, server: ModelServer) -> None:
    assert await client.use("/steer hello") == ""
    await client.active_session.chat.conversation.wait_until_idle()
    assert await client.transcript() == [("user", "hello"), ("assistant", "ok")]
    assert "Add the text for the running turn" in await client.use("/steer")


@pytest.mark.slow
async def test_approve_allows_the_call_once(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("Gone."))
    await client.use("/queue clean up")
    await _until_asked(client)
    assert await client.use("/approve") == "Allowed this time: `terminal`."
    await client.active_session.chat.conversation.wait_until_idle()
    assert not (client.active_session.chat.workspace.folder / "build").exists()
    assert await client.use("/approve") == "Nothing is waiting for approval."


@pytest.mark.slow
async def test_call_approved_for_the_session_is_not_asked_about_again(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("Gone."), Say(calls=[DANGEROUS]), Say("Still gone."))
    await client.use("/queue clean up")
    await _until_asked(client)
    assert "for this conversation" in await client.use("/approve session")
    await client.active_session.chat.conversation.wait_until_idle()
    await client.say("again")
    assert len([event for event in client.events if isinstance(event, ApprovalAsked)]) == 1


@pytest.mark.parametrize(
    ("typed", "reason"), [("/deny", "the user refused."), ("/deny once", "refused: once."), ("/deny Use git.", "git.")]
)
async def test_deny_refuses_the_call_and_gives_the_agent_the_reason(
    client: ChatClient, server: ModelServer, typed: str, reason: str
) -> None:
    server.script(Say(calls=[DANGEROUS]), Say("All right."))
    await client.use("/queue clean up")
    await _until_asked(client)
    assert await client.use(typed) == "Denied: `terminal`."
    await client.active_session.chat.conversation.wait_until_idle()
    assert (client.active_session.chat.workspace.folder / "build").exists()
    assert reason in server.received[-1].json["messages"][-1]["content"]
    assert await client.use("/deny") == "Nothing is waiting for approval."


async def test_approve_does_not_answer_a_question_of_the_agent(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("clarify", {"question": "Red or blue?"})]), Say("Blue."))
    await client.use("/queue paint it")
    questions = client.active_session.chat.questions
    await until(lambda: bool(questions.waiting))
    assert await client.use("/approve") == "Nothing is waiting for approval."
    questions.answer(questions.waiting[0], "blue")
    await client.active_session.chat.conversation.wait_until_idle()


async def test_approve_is_for_the_owner_and_accepts_only_known_scopes(client: ChatClient, server: ModelServer) -> None:
    stranger = Author("eve", owner=False)
    assert "Only the owner" in await client.use("/approve always", author=stranger)
    assert "Only the owner" in await client.use("/deny", author=stranger)
    assert "Unknown scope `forever`. Choose one of once, session, always." in await client.use("/approve forever")
    assert [word for word, _ in await client.offers("approve")] == ["once", "session", "always"]


async def _until_asked(client: ChatClient) -> None:
    await until(lambda: bool(client.active_session.chat.questions.approvals))
