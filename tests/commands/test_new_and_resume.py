"""Switching between sessions: `/new` and `/resume`."""

from pathlib import Path

from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.model_server import ModelServer, Say

GUEST = Author("Somebody", owner=False)


async def _talk(client: ChatClient, title: str, *messages: str) -> SessionId:
    """Create a session with this title and these messages, and leave it for a new one."""
    for text in messages:
        await client.say(text)
    here = client.active_session.session_id
    await client.use(f"/title {title}")
    await client.use("/new")
    return here


async def test_new_starts_a_session_and_shows_how_to_resume_the_previous_one(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await client.say("hi")
        before = client.active_session.session_id
        shown = await client.use("/new The *next* one")
        assert shown == (
            f"Started a new conversation: *The \\*next\\* one*. `/resume {before}` returns to the previous one."
        )
        assert client.active_session.session_id != before
        assert await client.transcript() == []
        await client.use(f"/resume {before}")
        assert client.active_session.session_id == before
        await client.use("/title Trains")
        assert "`/resume Trains`" in await client.use("/reset")


async def test_new_in_an_empty_session_deletes_the_empty_session(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        before = client.active_session.session_id
        assert await client.use("/new") == "Started a new conversation."
        assert await client.application.store.read(lambda tx: tx.sessions.get(before)) is None


async def test_resume_finds_a_session_by_id_or_title_and_shows_the_last_exchange(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        server.script(Say("By day."), Say("Take the **night train**."))
        trains = await _talk(client, "Night trains", "How to Vienna?", "And cheaper?")
        for query in (trains, trains[:12], "night TRAINS", "ains"):
            shown = await client.use(f"/resume {query}")
            assert client.active_session.session_id == trains
            assert shown == "Back in *Night trains*.\n\n> **You:** And cheaper?\n\nTake the **night train**."
            await client.use("/new")


async def test_resume_without_arguments_offers_the_latest_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        ids = [await _talk(client, f"Talk {number}", "hi") for number in range(12)]
        client.surface.answers = [2, None]
        await client.use("/resume")
        question, choices = client.surface.questions[-1]
        assert question == "Which conversation?"
        assert [choice.partition(" (")[0] for choice in choices] == [f"Talk {number}" for number in range(11, 1, -1)]
        assert client.active_session.session_id == ids[9]
        assert await client.use("/resume") == "You stay in this conversation."
        assert client.active_session.session_id == ids[9]


async def test_resume_asks_which_of_several_matches_is_meant(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert await client.use("/resume") == "There are no other conversations yet."
        vienna = await _talk(client, "Train to Vienna", "hi")
        await _talk(client, "Train to Rome", "hi")
        client.surface.answers = [1]
        await client.use("/resume train")
        assert len(client.surface.questions[-1][1]) == 2
        assert client.active_session.session_id == vienna
        assert await client.use("/resume vienna") == "You're already in this conversation."


async def test_resume_of_an_unknown_title_suggests_the_nearest_title(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await _talk(client, "Train to Vienna", "hi")
        here = client.active_session.session_id
        assert await client.use("/resume trane to vienna") == (
            "No conversation is called `trane to vienna`. Did you mean *Train to Vienna*?"
        )
        assert "`/sessions` lists the latest." in await client.use("/resume xyz")
        assert client.active_session.session_id == here


async def test_archived_session_can_be_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        old = await _talk(client, "Old things", "hi")
        await client.application.store.write(lambda tx: tx.sessions.update(old, SessionChanges(archived=True)))
        assert "Back in" in await client.use("/resume old things")
        assert client.active_session.session_id == old


async def test_failed_resume_is_reported_and_the_active_session_continues(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        lost = await _talk(client, "Lost", "hi")
        here = client.active_session.session_id
        choice = Preferences(model="nowhere:nothing")
        await client.application.store.write(lambda tx: write_preferences(tx, lost, choice))
        assert "nowhere" in await client.use("/resume lost")
        assert client.active_session.session_id == here
        await client.say("still here?")


async def test_guest_cannot_find_sessions_of_the_owner(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, chat=Address("telegram", "9", "group"), audience="telegram/9") as client,
    ):
        await _talk(client, "Secret plans", "hi")
        assert await client.use("/resume secret", author=GUEST) == "I couldn't find that."
        assert await client.use("/resume", author=GUEST) == "I couldn't find that."
        assert client.surface.questions == []
        assert "Secret" not in await client.use("/sessions", author=GUEST)
        assert await client.use("/search hi", author=GUEST) == "Nothing found."
        assert await client.offers("/resume") != []


async def test_guest_sees_only_their_own_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=Address("telegram", "9")) as client:
        await _talk(client, "Secret plans", "hi")
        own = NewSession(source="telegram", title="Own plans", owner="ana")
        created = await client.application.store.write(lambda tx: tx.sessions.create(own))
        here = client.active_session.session_id
        await client.application.store.write(lambda tx: tx.sessions.update(here, SessionChanges(owner="ana")))
        assert "Own plans" in await client.use("/sessions", author=GUEST)
        assert "Secret" not in "".join(client.shown[-1:])
        await client.use("/resume plans", author=GUEST)
        assert client.active_session.session_id == created.id


async def test_completions_of_resume_are_titles_or_ids_if_titles_are_ambiguous(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        await _talk(client, "Twice", "one")
        twice = await _talk(client, "Twice", "two")
        await _talk(client, "Once", "three")
        offered = dict(await client.offers("/resume"))
        assert "Once" in offered
        assert "Twice" not in offered
        assert "Twice" in offered[twice]


async def test_resume_in_a_chat_binds_the_chat_to_the_session(tmp_path: Path) -> None:
    chat = Address("telegram", "9")
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=chat, key="telegram:9") as client:
        trains = await _talk(client, "Trains", "hi")
        await client.use("/resume trains")
        binding = await client.application.store.read(lambda tx: tx.bindings.get("telegram:9"))
        assert binding is not None
        assert binding.session_id == trains


async def test_owner_in_a_group_sees_only_sessions_of_that_group(tmp_path: Path) -> None:
    async with ModelServer() as server:
        async with open_chat_client(tmp_path, server) as client:
            private = await _talk(client, "Secret plans", "hi there")
        group = Address("telegram", "9", "group")
        async with open_chat_client(tmp_path, server, chat=group, key="group", audience="telegram/9") as client:
            await _talk(client, "Garden plans", "hi garden")
            listed = await client.use("/sessions")
            assert "Garden plans" in listed
            assert "Secret" not in listed + await client.use("/search hi") + await client.use("/resume secret")
            assert "Secret plans" not in dict(await client.offers("/resume"))
            await client.use(f"/resume {private}")
            assert client.active_session.session_id == private
            assert await _audience(client, private) == "telegram/9"
        async with open_chat_client(tmp_path, server) as client:
            assert "Garden plans" in await client.use("/sessions")
            await client.use("/resume secret plans")
            assert await _audience(client, private) == ""


async def test_terminal_resumes_sessions_of_others_only_by_their_full_id(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        new = NewSession(source="telegram", title="Plans of Ana", owner="ana")
        hers = await client.application.store.write(lambda tx: tx.sessions.create(new))
        assert "Ana" not in await client.use("/sessions")
        assert "No conversation is called" in await client.use("/resume plans of ana")
        assert "No conversation is called" in await client.use(f"/resume {hers.id[:12]}")
        await client.use(f"/resume {hers.id}")
        assert client.active_session.session_id == hers.id


async def _audience(client: ChatClient, session_id: SessionId) -> str:
    session = await client.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return session.audience
