"""The gateway on XMPP: a whole process, killed during traffic, between people on a real server and the model."""

import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.platforms.xmpp.far_side import CORRECTION, OOB, PASSWORD, Person
from tests.system.test_gateway_process import running

from talaria.platforms.xmpp.xml_stream import make
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.system_servers import PROSODY, PROSODY_MISSING, ROOMS, ProsodyServer, prosody
from talaria.testing.wait import until

PEOPLE = ("ann", "bob", "cleo")
BOT, ROOM = "talaria@localhost", f"garden@{ROOMS}"
KILLS = 3


@pytest.fixture(scope="module")
def xmpp() -> Iterator[ProsodyServer]:
    if not Path(PROSODY).exists():
        pytest.skip(PROSODY_MISSING)
    with prosody() as server:
        yield server


@pytest.fixture
async def people(xmpp: ProsodyServer) -> AsyncIterator[list[Person]]:
    async with AsyncExitStack() as stack:
        xmpp.set_password("talaria", PASSWORD)
        people = [Person(xmpp, user) for user in PEOPLE]
        for person in people:
            await person.open()
            stack.push_async_callback(person.close)
        await people[0].enter(ROOM)
        yield people


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, xmpp: ProsodyServer) -> Program:
    settings = (
        '[gateway]\nlease_seconds = 1.0\n[access]\npairing = false\nowners = ["xmpp:cleo@localhost"]\n'
        'allowed = ["xmpp:ann@localhost", "xmpp:bob@localhost"]\n[platforms.xmpp.options]\n'
        f'server = "127.0.0.1:{xmpp.port}"\nca_file = "{xmpp.certificate}"\nrooms = "{ROOM}"\n'
    )
    return scripted_program(tmp_path, server, settings, f"XMPP_JID={BOT}\nXMPP_PASSWORD={PASSWORD}\n")


async def replies(people: list[Person]) -> Counter[str]:
    return Counter([text for person in people for text in await person.texts(sender=BOT)])


async def online(person: Person) -> bool:
    """Return whether the bot is in the room."""
    states = [one.get("type", "") for one in person.stanzas if one.get("from") == f"{ROOM}/talaria"]
    return bool(states) and states[-1] != "unavailable"


async def test_gateway_killed_during_traffic_answers_every_message_once(
    program: Program, server: ModelServer, people: list[Person]
) -> None:
    def answer(received: Received) -> Say:
        slow = received.question.endswith("slowly") and len(server.received) <= len(PEOPLE)
        return Say(f"re: {received.question}", pause=60 if slow else 0)

    server.answering(answer)
    asked: list[str] = []

    async def ask(text: str) -> None:
        for person in people:
            asked.append(f"{person.user} {text}")
            await person.say(BOT, asked[-1])

    for number in range(KILLS):
        async with running(program) as process:
            await until(lambda: online(people[0]))
            await ask(f"{number} slowly" if number == 0 else f"{number}")
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
        await ask(f"{number} meanwhile")
    expected = {f"re: {question}" for question in asked}
    async with running(program):
        await until(lambda: _all_seen(people, expected))
    assert await replies(people) == Counter(expected)  # none twice: the archive of the server shows the sent ones


async def _all_seen(people: list[Person], expected: set[str]) -> bool:
    return expected <= set(await replies(people))


async def test_room_messages_and_corrections_are_answered_and_strangers_ignored(
    program: Program, server: ModelServer, people: list[Person]
) -> None:
    server.answering(lambda received: Say(f"re: {received.question.rpartition('] ')[2]}"))
    ann, bob, _ = people
    stranger = Person(ann.server, "mallory")
    await stranger.open()
    await stranger.enter(ROOM, "cleo")  # the nick of the owner
    async with running(program):
        await until(lambda: online(ann))
        await stranger.say(ROOM, "talaria: it's me, cleo", kind="groupchat")
        await stranger.say(BOT, "believe me")
        await ann.say(ROOM, "not for you", kind="groupchat")
        await ann.say(ROOM, "talaria: when was that?", kind="groupchat")
        await until(lambda: _has(ann, f"{ROOM}/talaria", "re: when was that?"))
        first = await bob.say(BOT, "two plus tow")
        await until(lambda: _has(bob, BOT, "re: two plus tow"))
        await bob.say(BOT, "two plus two", make(CORRECTION, "replace", {"id": first}))
        await until(lambda: _has(bob, BOT, "re: two plus two"))
        assert await ann.texts(sender=f"{ROOM}/talaria") == ["re: when was that?"]
        assert await stranger.texts(sender=BOT) == []
    assert not any("cleo" in one.question or "believe" in one.question for one in server.received)
    await stranger.close()


async def _has(person: Person, sender: str, text: str) -> bool:
    return text in await person.texts(sender=sender)


async def test_files_are_received_and_sent(program: Program, server: ModelServer, people: list[Person]) -> None:
    cleo = people[2]

    def answer(received: Received) -> Say:
        path = re.search(r"/\S*notes\.txt", received.question)
        return Say(calls=[Ask("send_file", {"path": path[0]})]) if path and len(server.received) == 1 else Say("There.")

    server.answering(answer)
    url = await cleo.upload("notes.txt", b"42\n")
    async with running(program):
        await until(lambda: online(people[0]))
        await cleo.say(BOT, url, make(OOB, "x", None, make(OOB, "url", None, url)))
        await until(lambda: _has(cleo, BOT, "There."))
        await until(lambda: _has_file(cleo))
    (sent,) = [one for one in await cleo.messages(sender=BOT) if one.find(f"{{{OOB}}}x") is not None]
    async with aiohttp.ClientSession() as http, http.get(sent.findtext(f"{{{OOB}}}x/{{{OOB}}}url") or "") as answered:
        assert await answered.read() == b"42\n"


async def _has_file(person: Person) -> bool:
    return any(one.files for one in await person.visible(sender=BOT))
