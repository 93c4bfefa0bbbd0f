"""Earlier conversations, found by words and by meaning."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.contracts.sample_messages import said
from tests.tools.tool_calls import call_from

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Tool
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.messages import Role
from talaria.tools.recall.tool import Meaning, SessionSearch, SessionSearchArguments


async def talk(store: Store, title: str, *texts: str, owner: str = "", audience: str = "") -> SessionId:
    """Store a conversation of alternating speakers."""
    roles: tuple[Role, Role] = ("user", "assistant")

    def write(tx: Transaction) -> SessionId:
        session = tx.sessions.create(NewSession(source="cli", title=title, owner=owner, audience=audience))
        tx.messages.append(session.id, [said(text, roles[place % 2]) for place, text in enumerate(texts)])
        return session.id

    session_id = await store.write(write)
    while await store.write(lambda tx: tx.search.catch_up()):
        pass
    return session_id


async def ask(
    tool: Tool, query: str = "", session: str = "", around: int = 0, owner: str = "", audience: str = ""
) -> str:
    call = call_from(Path(), owner=owner, audience=audience)
    return (await tool.run(SessionSearchArguments(query, session, around), call)).text


async def test_hits_are_grouped_by_conversation(store: Store) -> None:
    bread = await talk(store, "Bread", "How long do I bake rye bread?", "Bake rye for an hour.", "And wheat?")
    await talk(store, "Soup", "How do I cook soup?")
    headline, *hits = (await ask(SessionSearch(store), "bake rye")).splitlines()
    assert headline == f"2026-01-02 Bread (session {bread}, 3 messages)"
    assert sorted(hits) == ["#1 user: How long do I [bake] [rye] bread?", "#2 assistant: [Bake] [rye] for an hour."]
    assert await ask(SessionSearch(store), "xylophone") == "Nothing found. Try other words."


async def test_some_of_many_words_are_enough(store: Store) -> None:
    await talk(store, "Bread", "How long do I bake rye bread?")
    assert "[rye]" in await ask(SessionSearch(store), "rye temperature oven degrees")


async def test_messages_around_a_hit_are_read(store: Store) -> None:
    bread = await talk(store, "Bread", *(f"line {number}" for number in range(1, 31)))
    text = await ask(SessionSearch(store), session=bread, around=20)
    assert [line.split()[0] for line in text.splitlines()[2::2]] == [f"#{number}" for number in range(15, 26)]
    assert (await ask(SessionSearch(store), session=bread)).endswith("#30 assistant: line 30")
    assert "[line] [7]" in await ask(SessionSearch(store), "line 7", session=bread)


async def test_what_was_sent_from_elsewhere_is_distinguished(store: Store) -> None:
    bread = await talk(store, "Bread", "When?")
    sent = structs.replace(said("Dinner at 7.", "assistant"), author="Agent, from telegram")
    await store.write(lambda tx: tx.messages.append(bread, [sent]))
    assert (await ask(SessionSearch(store), session=bread)).endswith(
        "#1 user: When?\n\n#2 assistant (Agent, from telegram): Dinner at 7."
    )


async def test_recent_conversations_are_listed_without_a_query(store: Store) -> None:
    assert await ask(SessionSearch(store)) == "There are no sessions yet."
    for title in ("Bread", "Soup", ""):
        await talk(store, title, "words")
    text = await ask(SessionSearch(store))
    assert sorted(line.split("(")[0] for line in text.splitlines()) == [
        "2026-01-02 Bread ",
        "2026-01-02 Soup ",
        "2026-01-02 untitled ",
    ]


async def test_people_find_only_their_own(store: Store) -> None:
    hers = await talk(store, "Hers", "the rye secret", owner="chat:1")
    await talk(store, "His", "the rye bread", owner="chat:2")
    for meaning in (None, Meaning()):
        tool = SessionSearch(store, meaning)
        assert "Hers" not in await ask(tool, "rye", owner="chat:2")
        assert "His" in await ask(tool, "rye", owner="chat:2")
        assert "Hers" not in await ask(tool, owner="chat:2")
        for around in (0, 1):
            with pytest.raises(ToolFailed, match="no session"):
                await ask(tool, session=hers, around=around, owner="chat:2")
        assert await ask(tool, "rye", session=hers, owner="chat:2") == "Nothing found. Try other words."
        assert "Hers" not in await ask(tool, "rye")


async def test_what_was_said_in_private_is_not_found_where_others_read_along(store: Store) -> None:
    private = await talk(store, "Private", "the rye secret", owner="chat:1")
    await talk(store, "In the group", "the rye bread", owner="chat:1", audience="chat/9")
    for meaning in (None, Meaning()):
        tool = SessionSearch(store, meaning)
        for query in ("rye", ""):
            found = await ask(tool, query, owner="chat:1", audience="chat/9")
            assert "In the group" in found
            assert "Private" not in found
            assert "Private" in await ask(tool, query, owner="chat:1")
        with pytest.raises(ToolFailed, match="no session"):
            await ask(tool, session=private, owner="chat:1", audience="chat/9")


async def test_the_conversation_that_continues_is_read_wherever_it_was_brought(store: Store) -> None:
    here = await talk(store, "Brought along", "the rye bread")
    call = call_from(Path(), owner="chat/9", audience="chat/9", session_id=here)
    for arguments in (SessionSearchArguments(session=here), SessionSearchArguments("rye", here)):
        assert "Brought along" in (await SessionSearch(store).run(arguments, call)).text
    assert "Brought" not in (await SessionSearch(store).run(SessionSearchArguments("rye"), call)).text


async def test_what_means_the_same_is_found_without_the_words(store: Store) -> None:
    await talk(store, "Deploying", "The deployment happens on Friday.")
    await talk(store, "Dogs", "My dog likes bones.", "Dogs do, mostly the big ones.")
    await talk(store, "Weather", "It rains a lot in Oslo.")
    assert await ask(SessionSearch(store), "pets") == "Nothing found. Try other words."
    found = await ask(SessionSearch(store, Meaning()), "pets")
    assert found.splitlines()[0].startswith("2026-01-02 Dogs")
    assert "Oslo" not in found


async def test_loading_the_embeddings_leaves_logging_as_it_was() -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    same, other = await Meaning().nearness("a small dog", ["a small dog", "tax law"])
    assert same == pytest.approx(1, abs=1e-4)
    assert other < 0.3
    assert (root.level, root.handlers) == before


def test_embeddings_are_loaded_only_when_needed() -> None:
    script = "import sys, talaria.tools.recall.tool\nassert not {'wordllama', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
