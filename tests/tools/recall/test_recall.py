"""Search in earlier sessions, by words and by meaning."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from tests.contracts.sample_messages import text_message
from tests.tools.tool_calls import call_from

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Tool
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.messages import Role
from talaria.tools.recall.tool import Meaning, SessionSearch, SessionSearchArguments


async def store_session(store: Store, title: str, *texts: str, owner: str = "", audience: str = "") -> SessionId:
    """Store a session in which user and assistant alternate."""
    roles: tuple[Role, Role] = ("user", "assistant")

    def write(tx: Transaction) -> SessionId:
        session = tx.sessions.create(NewSession(source="cli", title=title, owner=owner, audience=audience))
        tx.messages.append(session.id, [text_message(text, roles[number % 2]) for number, text in enumerate(texts)])
        return session.id

    session_id = await store.write(write)
    while await store.write(lambda tx: tx.search.catch_up()):
        pass
    return session_id


async def search(
    tool: Tool, query: str = "", session: str = "", around: int = 0, owner: str = "", audience: str = ""
) -> str:
    call = call_from(Path(), owner=owner, audience=audience)
    return (await tool.run(SessionSearchArguments(query, session, around), call)).text


async def test_hits_are_grouped_by_session(store: Store) -> None:
    bread = await store_session(store, "Bread", "How long do I bake rye bread?", "Bake rye for an hour.", "And wheat?")
    await store_session(store, "Soup", "How do I cook soup?")
    headline, *hits = (await search(SessionSearch(store), "bake rye")).splitlines()
    assert headline == f"2026-01-02 Bread (session {bread}, 3 messages)"
    assert sorted(hits) == ["#1 user: How long do I [bake] [rye] bread?", "#2 assistant: [Bake] [rye] for an hour."]
    assert await search(SessionSearch(store), "xylophone") == "Nothing found. Try other words."


async def test_query_matches_if_some_of_its_words_match(store: Store) -> None:
    await store_session(store, "Bread", "How long do I bake rye bread?")
    assert "[rye]" in await search(SessionSearch(store), "rye temperature oven degrees")


async def test_messages_around_a_hit_are_shown(store: Store) -> None:
    bread = await store_session(store, "Bread", *(f"line {number}" for number in range(1, 31)))
    text = await search(SessionSearch(store), session=bread, around=20)
    assert [line.split()[0] for line in text.splitlines()[2::2]] == [f"#{number}" for number in range(15, 26)]
    assert (await search(SessionSearch(store), session=bread)).endswith("#30 assistant: line 30")
    assert "[line] [7]" in await search(SessionSearch(store), "line 7", session=bread)


async def test_cross_posted_message_is_shown_with_its_author(store: Store) -> None:
    bread = await store_session(store, "Bread", "When?")
    sent = structs.replace(text_message("Dinner at 7.", "assistant"), author="Agent, from telegram")
    await store.write(lambda tx: tx.messages.append(bread, [sent]))
    assert (await search(SessionSearch(store), session=bread)).endswith(
        "#1 user: When?\n\n#2 assistant (Agent, from telegram): Dinner at 7."
    )


async def test_recent_sessions_are_listed_without_a_query(store: Store) -> None:
    assert await search(SessionSearch(store)) == "There are no sessions yet."
    for title in ("Bread", "Soup", ""):
        await store_session(store, title, "words")
    text = await search(SessionSearch(store))
    assert sorted(line.split("(")[0] for line in text.splitlines()) == [
        "2026-01-02 Bread ",
        "2026-01-02 Soup ",
        "2026-01-02 untitled ",
    ]


async def test_sessions_are_found_only_by_their_owner(store: Store) -> None:
    hers = await store_session(store, "Hers", "the rye secret", owner="chat:1")
    await store_session(store, "His", "the rye bread", owner="chat:2")
    for meaning in (None, Meaning()):
        tool = SessionSearch(store, meaning)
        assert "Hers" not in await search(tool, "rye", owner="chat:2")
        assert "His" in await search(tool, "rye", owner="chat:2")
        assert "Hers" not in await search(tool, owner="chat:2")
        for around in (0, 1):
            with pytest.raises(ToolFailed, match="no session"):
                await search(tool, session=hers, around=around, owner="chat:2")
        assert await search(tool, "rye", session=hers, owner="chat:2") == "Nothing found. Try other words."
        assert "Hers" not in await search(tool, "rye")


async def test_private_sessions_are_not_found_in_a_group(store: Store) -> None:
    private = await store_session(store, "Private", "the rye secret", owner="chat:1")
    await store_session(store, "In the group", "the rye bread", owner="chat:1", audience="chat/9")
    for meaning in (None, Meaning()):
        tool = SessionSearch(store, meaning)
        for query in ("rye", ""):
            found = await search(tool, query, owner="chat:1", audience="chat/9")
            assert "In the group" in found
            assert "Private" not in found
            assert "Private" in await search(tool, query, owner="chat:1")
        with pytest.raises(ToolFailed, match="no session"):
            await search(tool, session=private, owner="chat:1", audience="chat/9")


async def test_current_session_is_readable_in_any_audience(store: Store) -> None:
    current = await store_session(store, "Brought along", "the rye bread")
    call = call_from(Path(), owner="chat/9", audience="chat/9", session_id=current)
    for arguments in (SessionSearchArguments(session=current), SessionSearchArguments("rye", current)):
        assert "Brought along" in (await SessionSearch(store).run(arguments, call)).text
    assert "Brought" not in (await SessionSearch(store).run(SessionSearchArguments("rye"), call)).text


async def test_similar_meaning_is_found_without_common_words(store: Store) -> None:
    await store_session(store, "Deploying", "The deployment happens on Friday.")
    await store_session(store, "Dogs", "My dog likes bones.", "Dogs do, mostly the big ones.")
    await store_session(store, "Weather", "It rains a lot in Oslo.")
    assert await search(SessionSearch(store), "pets") == "Nothing found. Try other words."
    found = await search(SessionSearch(store, Meaning()), "pets")
    assert found.splitlines()[0].startswith("2026-01-02 Dogs")
    assert "Oslo" not in found


async def test_loading_the_embeddings_leaves_logging_as_it_was() -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    same, other = await Meaning().compute_similarity("a small dog", ["a small dog", "tax law"])
    assert same == pytest.approx(1, abs=1e-4)
    assert other < 0.3
    assert (root.level, root.handlers) == before


def test_embeddings_are_loaded_only_when_needed() -> None:
    script = "import sys, talaria.tools.recall.tool\nassert not {'wordllama', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
