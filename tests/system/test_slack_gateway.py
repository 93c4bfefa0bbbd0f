"""The gateway on Slack: the process, the adapter and a workspace that is strict."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.cli.chat.chat_screen import opened, ready, say
from tests.system.handoff_fixture import Terminal, hand_off_from_terminal
from tests.system.test_gateway_process import running
from tests.system.test_handoff_networks import request_handoff

from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.slack_server import APP_TOKEN, TOKEN, SlackServer, User
from talaria.testing.slack_server.methods import choices_of


@pytest.fixture
async def slack() -> AsyncIterator[SlackServer]:
    async with SlackServer() as slack:
        yield slack
    assert slack.hub.complaints == []


@pytest.fixture
def ann(slack: SlackServer) -> User:
    return slack.user("Ann")


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, slack: SlackServer, ann: User) -> Program:
    return scripted_program(
        tmp_path,
        server,
        f'[access]\nowners = ["slack:{ann.id}"]\n[platforms.slack.options]\nbase_url = "{slack.base_url}"\n',
        f"SLACK_BOT_TOKEN={TOKEN}\nSLACK_APP_TOKEN={APP_TOKEN}\n",
    )


async def test_a_question_in_a_channel_is_answered_in_its_thread(
    program: Program, server: ModelServer, slack: SlackServer, ann: User
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    channel = slack.channel("family", ann)
    async with running(program):
        asked = await channel.says(ann, "the code word is heron", mention=True)
        await channel.wait_for(lambda one: one.text == "re: [Ann] the code word is heron")
        await channel.says(ann, "among ourselves")
        await channel.says(ann, "what was it?", thread=asked.ts)
        await channel.wait_for(lambda one: one.text == "re: [Ann] what was it?")
    assert {one.thread_ts for one in channel.answers} == {asked.ts}
    assert "heron" in str(next(one for one in server.received if one.question == "[Ann] what was it?").body)
    assert not any("among ourselves" in one.question for one in server.received)


async def test_approval_is_asked_with_a_button_in_the_thread(
    program: Program, server: ModelServer, slack: SlackServer, ann: User
) -> None:
    chat = slack.direct(ann)
    server.script(Say(calls=[Ask("terminal", {"command": "echo true | sh && touch done"})]), Say("It is done."))
    async with running(program):
        root = await chat.opens_assistant(ann)
        await chat.says(ann, "clean up", thread=root.ts)
        question = await chat.wait_for(lambda one: bool(choices_of(one.blocks)))
        yes = choices_of(question.blocks)[0][0]
        assert (yes, question.thread_ts) == ("Yes, this once", root.ts)
        await chat.chooses(ann, question, yes)
        done = await chat.wait_for(lambda one: one.text == "It is done.")
    assert done.thread_ts == root.ts


async def test_event_redelivered_three_times_is_answered_once(
    program: Program, server: ModelServer, slack: SlackServer, ann: User
) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    chat = slack.direct(ann)
    async with running(program):
        await chat.says(ann, "first")
        for _ in range(3):
            await slack.hub.repeat(slack.hub.handed[0])
        await chat.wait_for(lambda one: one.text == "re: first")
        await chat.says(ann, "second")
        await chat.wait_for(lambda one: one.text == "re: second")
    await chat.says(ann, "third")
    slack.hub.drop()
    async with running(program):  # a new process without state, which fetches missed messages
        await chat.wait_for(lambda one: one.text == "re: third")
        await slack.hub.repeat(slack.hub.handed[0])
        await chat.says(ann, "last")
        await chat.wait_for(lambda one: one.text == "re: last")
    assert [one.text for one in chat.answers] == ["re: first", "re: second", "re: third", "re: last"]


async def test_a_slash_command_is_answered(program: Program, slack: SlackServer, ann: User) -> None:
    chat = slack.direct(ann)
    async with running(program):
        await chat.runs(ann, "/talaria", "whoami")
        await chat.wait_for(lambda one: "owner" in one.text)


@pytest.mark.parametrize("where", ["channel", "private chat"])
async def test_session_is_handed_off_to_a_thread(
    program: Program, server: ModelServer, slack: SlackServer, ann: User, where: str
) -> None:
    home = slack.channel("family", ann) if where == "channel" else slack.direct(ann)
    server.answering(lambda received: Say(f"re: {received.question[:40]}"))
    async with running(program):
        await home.runs(ann, "/talaria", "sethome")
        await home.wait_for(lambda one: "my home chat on Slack" in one.text)
        async with opened(program) as screen:
            await ready(screen)
            await say(screen, "Build a boat.")
            await screen.wait_for(re.compile("re: Build a boat"))
            await hand_off_from_terminal(screen, "slack")
        greeting = await home.wait_for(lambda one: one.thread_ts != "")
        assert any(one.ts == greeting.thread_ts for one in home.answers)
        await home.says(ann, "Of oak.", thread=greeting.thread_ts)
        question = "[Ann] Of oak." if where == "channel" else "Of oak."
        await home.wait_for(lambda one: (one.text, one.thread_ts) == (f"re: {question}", greeting.thread_ts))
    assert "Build a boat." in str(next(one for one in server.received if one.question == question).body)


async def test_error_of_a_handoff_without_a_home_chat_names_the_slack_command(program: Program) -> None:
    async with running(program):
        store = open_sqlite_store(program.home / "profiles" / "default" / "talaria.db")
        try:
            terminal = Terminal(store)
            session_id = await terminal.ask(lambda tx: request_handoff(tx, "slack"))
            over = await terminal.until_over(session_id)
        finally:
            await store.close()
    assert over["error"] == "Slack has no home chat; send `/talaria sethome` in the chat you want to use"
