"""Commands with information about sessions: lists, search, history, export, status and usage."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.commands.command_fixture import open_chat_client
from tests.runtime.delegation.delegating_model import DelegatingModel, delegate_tasks, until_stored

from talaria.commands.command import Author
from talaria.contracts.platform import Content
from talaria.contracts.stores.queues import Arrival
from talaria.core.addresses import Address
from talaria.core.messages import Usage
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.runtime.delegation.task_store import list_background
from talaria.sessions.chat_directory import GATEWAY
from talaria.sessions.keys import build_session_key
from talaria.sessions.transcript_export import Transcript
from talaria.testing.model_server import Ask, ModelServer, Say, Tokens

GUEST = Author("Somebody", owner=False)
LOOK = Ask("todo", {"steps": [{"text": "look"}]})


async def test_sessions_lists_the_latest_and_marks_the_active_one(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("How do I get to Vienna by train?")
        first = client.active_session.session_id
        await client.use("/new Second *one*")
        await client.say("hi")
        shown = (await client.use("/sessions")).splitlines()
        assert shown[0] == (
            f"- **Second \\*one\\*** (this one): just now, 2 messages, cli, `{client.active_session.session_id}`"
        )
        assert shown[1] == f"- **How do I get to Vienna by train?**: just now, 2 messages, cli, `{first}`"
        assert "/resume" in shown[-1]
        assert len((await client.use("/sessions 1")).splitlines()) == 3
        assert await client.use("/sessions x") == "`x` isn't a whole number of 1 or more."
        assert "isn't a whole number" in await client.use("/sessions 0")


async def test_search_shows_hits_by_session_and_how_to_resume_it(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say("The night train leaves at nine."), Say("No."))
        await client.say("When does the train to *Vienna* leave?")
        await client.use("/new Other")
        await client.say("Is there a bus?")
        shown = await client.use("/search train")
        assert "**When does the train to \\*Vienna\\* leave?**" in shown
        assert "- assistant: The night **train** leaves at nine." in shown
        assert "- user: When does the **train** to \\*Vienna\\* leave?" in shown
        assert "`/resume " in shown
        assert "this conversation" in await client.use("/search bus")
        assert await client.use("/search zeppelin") == "Nothing found."
        assert "What should I search for?" in await client.use("/search")
        assert await client.use('/search "((" ***') == "Nothing found."


async def test_history_shows_each_tool_call_in_one_line(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert await client.use("/history") == "Nothing has been said here yet."
        server.script(Say("Let me see.", calls=[LOOK]), Say("```\ncode\n```"))
        await client.say("Plan it")
        shown = await client.use("/history")
        assert shown.startswith("**You** · just now\n\nPlan it\n\n**Agent** · just now\n\nLet me see.")
        assert '- `→ todo {"steps":[{"text":"look"}]}`' in shown
        assert "- `← [ ] 1. look`" in shown
        assert shown.endswith("```\ncode\n```")
        assert (await client.use("/history 1")).startswith("*3 earlier; `/save` writes them all to a file.*")


async def test_history_shows_the_source_of_a_cross_post(tmp_path: Path) -> None:
    chat = Address("loopback", "ann")
    post = CrossPost(
        key="1", address=chat, content=Content(text="Dinner at 7."), source="a script", at=datetime.now(UTC)
    )
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, chat=chat, key=build_session_key(chat)) as client,
    ):
        await client.say("hello")
        await client.application.store.write(
            lambda tx: tx.bindings.bind(client.active_session.key, client.active_session.session_id, chat)
        )
        await client.application.store.write(lambda tx: send_cross_post(tx, post))
        assert (await client.use("/history 1")).endswith("**Agent, from a script** · just now\n\nDinner at 7.")
        before = client.active_session.session_id
        await client.use("/new")
        shown = await client.use(f"/resume {before}")
        assert shown.endswith("> **You:** hello\n\nok\n\n**Agent, from a script:** Dinner at 7.")


async def test_history_cuts_a_long_message_and_closes_its_code_block(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say("```\n" + "x = 1\n" * 500 + "```"))
        await client.say("hi")
        shown = await client.use("/history 1")
        assert len(shown) < 1_700
        assert shown.endswith("…\n```")


async def test_save_writes_a_file_to_the_workspace_and_never_overwrites_one(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert "nothing to save" in await client.use("/save")
        await client.say("hi")
        await client.use("/title Trip: *Vienna*")
        work = tmp_path / "work"
        assert await client.use("/save") == (
            f"Saved 2 messages to `{work / (client.active_session.session_id + '-trip-vienna.md')}`."
        )
        assert "already exists" in await client.use("/save")
        await client.use("/save 'my trip.md'")
        written = work / "my trip.md"
        assert written.read_text().startswith("# Trip: *Vienna*\n")
        assert written.stat().st_mode & 0o777 == 0o600
        await client.use("/save --json talk.json")
        transcript = msgspec.json.decode((work / "talk.json").read_bytes(), type=Transcript)
        assert [stored.message.text for stored in transcript.messages] == ["hi", "ok"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("a b", "takes one file"),
        ("--xml", "takes one file"),
        ("'a", "quotation mark is missing"),
        ("missing/folder/x.md", "Can't write"),
    ],
)
async def test_save_reports_invalid_arguments(tmp_path: Path, arguments: str, error: str) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("hi")
        assert error in await client.use(f"/save {arguments}")
        assert list((tmp_path / "work").iterdir()) == []


async def test_only_the_owner_can_save_the_transcript(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=Address("telegram", "1")) as client:
        await client.say("hi")
        assert "Only the owner" in await client.use("/save", author=GUEST)
        assert "Saved 2 messages to" in await client.use("/save")


@pytest.mark.slow
async def test_compress_shows_the_saved_tokens_or_that_the_session_is_too_short(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("hi")
        assert "too short to gain" in await client.use("/compress")
        long = "Goal: to write much. Decisions: numbers in words. Facts: there are three. Open: what comes next."
        for number in range(3):
            server.script(Say(f"{number} " + "word and again " * 2_000))
            await client.say(f"more {number}")
        server.otherwise(Say(long))
        shown = await client.use("/compress")
        before, after = (int(word.replace(",", "").strip(".")) for word in shown.split() if word[0].isdigit())
        assert before > 20_000
        assert after < before / 1.4
        assert len(await client.transcript()) == 8
        await client.say("and now?")
        assert long in server.received[-1].body.decode()


async def test_status_shows_session_model_folder_branch_and_gateway(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        shown = await client.use("/status")
        assert "0 messages" in shown
        assert "- Gateway: not running" in shown
        server.script(Say("ok", usage=Tokens(input=1_200, output=34)))
        await client.say("hi")
        await client.use("/title Trip")
        before = client.active_session.session_id
        shown = await client.use("/status")
        assert f"- Conversation: **Trip**, `{before}`, 2 messages" in shown
        assert "- Model: `scripted`, 1,234 of 32,768 tokens used (4%)" in shown
        assert "- Turn: not running" in shown
        assert f"- Folder: `{tmp_path / 'work'}`" in shown
        assert "Goal" not in shown
        await client.use("/branch")
        assert await client.application.store.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(minutes=1)))
        shown = await client.use("/status")
        assert f"- Branch of: *Trip*, `{before}`, from message 2" in shown
        assert "about " in shown
        assert "- Gateway: running" in shown
        assert "Folder" not in await client.use("/status", author=GUEST)


async def test_status_shows_running_turn_pending_messages_and_goal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, lasting=False) as client:
        server.script(Say("one two three", pause=30))
        await client.use("/goal count to ten")
        await server.arrived()
        here = client.active_session.session_id
        arrival = Arrival(session_id=here, source="cli", external_id="2", payload="{}", priority=-9)
        await client.application.store.write(lambda tx: tx.inbox.add(arrival))
        shown = await client.use("/status")
        assert "- Turn: running" in shown
        assert "- Waiting: 1 message" in shown
        assert "- Goal (active, 0 of 20 turns): count to ten" in shown
        item = await client.application.store.read(lambda tx: tx.inbox.list_unsettled(here)[-1].id)
        await client.application.store.write(lambda tx: tx.inbox.settle([item]))
        await client.use("/stop")


async def test_usage_counts_tokens_calls_and_money(tmp_path: Path) -> None:
    settings = "[budget]\ntotal = 5.0\nsession = 0.5\n[models.scripted]\ninput_price = 0.0\noutput_price = 0.0\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, settings) as client:
        assert "nothing used yet" in await client.use("/usage")
        server.script(Say("ok", usage=Tokens(input=400, output=20, cache_read=600)))
        await client.say("hi")
        shown = await client.use("/usage")
        assert "- This conversation: 1 model call, 1,000 tokens in (60% cached), 20 out" in shown
        assert "- Spent on everything this month: $0 of $5.00" in shown
        assert "- Spent on this conversation: $0 of $0.50" in shown
        await client.use("/branch")
        here = client.active_session.session_id
        await client.application.store.write(
            lambda tx: tx.usage.add(here, Usage(calls=2, input_tokens=10, cost_microdollars=2_500_000))
        )
        shown = await client.use("/usage")
        assert "- This conversation: 2 model calls, 10 tokens in (0% cached), 0 out, $2.50." in shown
        assert "- Including the conversation it was branched from: 3 model calls, 1,010 tokens in" in shown
        assert "Spent" not in await client.use("/usage", author=GUEST)


async def test_usage_includes_delegated_tasks_and_shows_their_part(tmp_path: Path) -> None:
    delegation = delegate_tasks("one", {"goal": "two", "tools": ["delegate_task"]})
    script = {"go": [delegation, Say("done")], "two": [delegate_tasks("deep"), Say("it is deep")]}
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        DelegatingModel(server, {**script, "deep": Say("so deep", usage=Tokens(input=5_000_000, output=1))})
        await client.say("go")
        await client.use("/background aside")
        await until_stored(client, lambda tx: not list_background(tx))
        here = await client.application.store.read(lambda tx: tx.sessions.get(client.active_session.session_id))
        assert here is not None
        own, shown = here.usage, await client.use("/usage")
        assert f"- This conversation: {own.calls + 5} model calls, " in shown
        assert "\n- Of that, delegated tasks: 5 model calls, 5,00" in shown
        await client.use("/branch")
        assert f"- Including the conversation it was branched from: {own.calls + 5} model calls, " in await client.use(
            "/usage"
        )
