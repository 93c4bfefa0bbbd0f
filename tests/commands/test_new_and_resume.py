"""Switching between sessions: `/new` and `/resume`."""

from pathlib import Path

from tests.commands.command_fixture import Desk, open_desk

from talaria.commands.command import Author
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.testing.model_server import ModelServer, Say

GUEST = Author("Somebody", owner=False)


async def _talk(desk: Desk, title: str, *messages: str) -> SessionId:
    """Create a session with this title and these messages, and leave it for a new one."""
    for text in messages:
        await desk.say(text)
    here = desk.active_session.session_id
    await desk.use(f"/title {title}")
    await desk.use("/new")
    return here


async def test_new_starts_a_session_and_shows_how_to_resume_the_previous_one(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await desk.say("hi")
        before = desk.active_session.session_id
        shown = await desk.use("/new The *next* one")
        assert shown == (
            f"Started a new conversation: *The \\*next\\* one*. `/resume {before}` returns to the previous one."
        )
        assert desk.active_session.session_id != before
        assert await desk.transcript() == []
        await desk.use(f"/resume {before}")
        assert desk.active_session.session_id == before
        await desk.use("/title Trains")
        assert "`/resume Trains`" in await desk.use("/reset")


async def test_new_in_an_empty_session_deletes_the_empty_session(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        before = desk.active_session.session_id
        assert await desk.use("/new") == "Started a new conversation."
        assert await desk.application.store.read(lambda tx: tx.sessions.get(before)) is None


async def test_resume_finds_a_session_by_id_or_title_and_shows_the_last_exchange(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        server.script(Say("By day."), Say("Take the **night train**."))
        trains = await _talk(desk, "Night trains", "How to Vienna?", "And cheaper?")
        for query in (trains, trains[:12], "night TRAINS", "ains"):
            shown = await desk.use(f"/resume {query}")
            assert desk.active_session.session_id == trains
            assert shown == "Back in *Night trains*.\n\n> **You:** And cheaper?\n\nTake the **night train**."
            await desk.use("/new")


async def test_resume_without_arguments_offers_the_latest_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        ids = [await _talk(desk, f"Talk {number}", "hi") for number in range(12)]
        desk.place.answers = [2, None]
        await desk.use("/resume")
        question, choices = desk.place.asked[-1]
        assert question == "Which conversation?"
        assert [choice.partition(" (")[0] for choice in choices] == [f"Talk {number}" for number in range(11, 1, -1)]
        assert desk.active_session.session_id == ids[9]
        assert await desk.use("/resume") == "You stay in this conversation."
        assert desk.active_session.session_id == ids[9]


async def test_resume_asks_which_of_several_matches_is_meant(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        assert await desk.use("/resume") == "There are no other conversations yet."
        vienna = await _talk(desk, "Train to Vienna", "hi")
        await _talk(desk, "Train to Rome", "hi")
        desk.place.answers = [1]
        await desk.use("/resume train")
        assert len(desk.place.asked[-1][1]) == 2
        assert desk.active_session.session_id == vienna
        assert await desk.use("/resume vienna") == "You're already in this conversation."


async def test_resume_of_an_unknown_title_suggests_the_nearest_title(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await _talk(desk, "Train to Vienna", "hi")
        here = desk.active_session.session_id
        assert await desk.use("/resume trane to vienna") == (
            "No conversation is called `trane to vienna`. Did you mean *Train to Vienna*?"
        )
        assert "`/sessions` lists the latest." in await desk.use("/resume xyz")
        assert desk.active_session.session_id == here


async def test_archived_session_can_be_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        old = await _talk(desk, "Old things", "hi")
        await desk.application.store.write(lambda tx: tx.sessions.update(old, SessionChanges(archived=True)))
        assert "Back in" in await desk.use("/resume old things")
        assert desk.active_session.session_id == old


async def test_failed_resume_is_reported_and_the_active_session_continues(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        lost = await _talk(desk, "Lost", "hi")
        here = desk.active_session.session_id
        choice = Preferences(model="nowhere:nothing")
        await desk.application.store.write(lambda tx: write_preferences(tx, lost, choice))
        assert "nowhere" in await desk.use("/resume lost")
        assert desk.active_session.session_id == here
        await desk.say("still here?")


async def test_guest_cannot_find_sessions_of_the_owner(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_desk(tmp_path, server, chat=Address("telegram", "9", "group"), audience="telegram/9") as desk,
    ):
        await _talk(desk, "Secret plans", "hi")
        assert await desk.use("/resume secret", author=GUEST) == "I couldn't find that."
        assert await desk.use("/resume", author=GUEST) == "I couldn't find that."
        assert desk.place.asked == []
        assert "Secret" not in await desk.use("/sessions", author=GUEST)
        assert await desk.use("/search hi", author=GUEST) == "Nothing found."
        assert await desk.offers("/resume") != []


async def test_guest_sees_only_their_own_sessions(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, chat=Address("telegram", "9")) as desk:
        await _talk(desk, "Secret plans", "hi")
        own = NewSession(source="telegram", title="Own plans", owner="ana")
        created = await desk.application.store.write(lambda tx: tx.sessions.create(own))
        here = desk.active_session.session_id
        await desk.application.store.write(lambda tx: tx.sessions.update(here, SessionChanges(owner="ana")))
        assert "Own plans" in await desk.use("/sessions", author=GUEST)
        assert "Secret" not in "".join(desk.shown[-1:])
        await desk.use("/resume plans", author=GUEST)
        assert desk.active_session.session_id == created.id


async def test_completions_of_resume_are_titles_or_ids_if_titles_are_ambiguous(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        await _talk(desk, "Twice", "one")
        twice = await _talk(desk, "Twice", "two")
        await _talk(desk, "Once", "three")
        offered = dict(await desk.offers("/resume"))
        assert "Once" in offered
        assert "Twice" not in offered
        assert "Twice" in offered[twice]


async def test_resume_in_a_chat_binds_the_chat_to_the_session(tmp_path: Path) -> None:
    chat = Address("telegram", "9")
    async with ModelServer() as server, open_desk(tmp_path, server, chat=chat, key="telegram:9") as desk:
        trains = await _talk(desk, "Trains", "hi")
        await desk.use("/resume trains")
        binding = await desk.application.store.read(lambda tx: tx.bindings.get("telegram:9"))
        assert binding is not None
        assert binding.session_id == trains


async def test_owner_in_a_group_sees_only_sessions_of_that_group(tmp_path: Path) -> None:
    async with ModelServer() as server:
        async with open_desk(tmp_path, server) as desk:
            private = await _talk(desk, "Secret plans", "hi there")
        group = Address("telegram", "9", "group")
        async with open_desk(tmp_path, server, chat=group, key="group", audience="telegram/9") as desk:
            await _talk(desk, "Garden plans", "hi garden")
            listed = await desk.use("/sessions")
            assert "Garden plans" in listed
            assert "Secret" not in listed + await desk.use("/search hi") + await desk.use("/resume secret")
            assert "Secret plans" not in dict(await desk.offers("/resume"))
            await desk.use(f"/resume {private}")
            assert desk.active_session.session_id == private
            assert await _audience(desk, private) == "telegram/9"
        async with open_desk(tmp_path, server) as desk:
            assert "Garden plans" in await desk.use("/sessions")
            await desk.use("/resume secret plans")
            assert await _audience(desk, private) == ""


async def test_terminal_resumes_sessions_of_others_only_by_their_full_id(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        new = NewSession(source="telegram", title="Plans of Ana", owner="ana")
        hers = await desk.application.store.write(lambda tx: tx.sessions.create(new))
        assert "Ana" not in await desk.use("/sessions")
        assert "No conversation is called" in await desk.use("/resume plans of ana")
        assert "No conversation is called" in await desk.use(f"/resume {hers.id[:12]}")
        await desk.use(f"/resume {hers.id}")
        assert desk.active_session.session_id == hers.id


async def _audience(desk: Desk, session_id: SessionId) -> str:
    session = await desk.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return session.audience
