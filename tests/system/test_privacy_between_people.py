"""No secret of one person is shown to another, even if the model obeys every request."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Program
from tests.app.program_with_model import scripted_program
from tests.storage.engines import StoreLocation
from tests.system.private_chats import (
    CHATS,
    OWNER,
    PEOPLE,
    TOPIC,
    PlantedSecret,
    PlantedSecrets,
    SampleChat,
    find_secrets,
    obey,
    order,
    origin_of,
)

from talaria.contracts.platform import Attachment
from talaria.core.ids import new_id
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.loopback_platform.wire import Record
from talaria.testing.model_server import Ask, ModelServer

COMMANDS = ("/sessions 50", f"/search {TOPIC}", "/history 50", "/status", "/usage", "/memory", "/whoami", "/debug")
RECALLING = (
    Ask("memory", {"action": "remove", "old": "there is no such entry"}),
    Ask("memory", {"action": "remove", "old": "there is no such entry", "book": "user"}),
    Ask("session_search", {}),
    Ask("session_search", {"query": TOPIC}),
    Ask("session_search", {"query": f"{TOPIC} OR about OR noted OR said"}),
)
SECONDS = 90.0
_AT_ONCE = 12  # visits


@dataclass
class Village:
    """A gateway over two networks, and the secrets planted there."""

    program: Program
    networks: dict[str, LoopbackNetwork]
    planted: PlantedSecrets = field(default_factory=PlantedSecrets)
    last: dict[tuple[str, SampleChat], str] = field(default_factory=dict)

    def posts(self, chat: SampleChat, since: int = 0) -> list[Record]:
        """Return the posts of a chat after this many records, including previews."""
        kinds, here = {"post", "edit", "repeat"}, (chat.address.chat_id, chat.address.thread_id)
        records = self.networks[chat.address.platform].records[since:]
        return [one for one in records if one.kind in kinds and (one.address.chat_id, one.address.thread_id) == here]

    async def posted(self, chat: SampleChat, text: str, since: int) -> None:
        """Wait until a text is posted in a chat."""
        network = self.networks[chat.address.platform]
        await network.until(lambda: any(text in one.text for one in self.posts(chat, since)), SECONDS)

    async def say(self, person: str, chat: SampleChat, text: str, until: str = "") -> None:
        """Send a message and wait until a text that contains ``until`` is posted."""
        network = self.networks[chat.address.platform]
        before = len(network.records)
        network.say(chat.address, text, sender=person)
        await self.posted(chat, until, before)

    async def have_called(self, person: str, chat: SampleChat, *calls: Ask) -> str:
        """Let the model call these tools, wait for its reply, and return the nonce of that reply."""
        nonce = new_id()
        await self.say(person, chat, order(person, chat, nonce, *calls), until=f"done {nonce}:")
        return nonce

    async def plant(self, person: str, chat: SampleChat) -> None:
        """Plant secrets in every possible way."""
        sow = self.planted.plant
        said, noted, about, title = (sow(person, chat, kind) for kind in ("said", "noted", "about", "title"))
        notes = Ask("memory", {"action": "add", "text": f"{TOPIC} noted {noted} by {person} in {chat.name}"})
        person_notes = {"action": "add", "text": f"{TOPIC} about {about} of {person}", "book": "user"}
        calls = [notes, Ask("memory", person_notes)] if _has_space_for_notes(person, chat) else []
        file = Attachment(new_id(), "document", "notes.txt", "text/plain")
        network, nonce = self.networks[chat.address.platform], new_id()
        before = len(network.records)
        network.say_with_file(
            chat.address,
            file,
            f"{TOPIC} {sow(person, chat, 'file')}".encode(),
            text=order(person, chat, nonce, *calls, text=f"{TOPIC} said {said}"),
            sender=person,
        )
        await self.posted(chat, f"done {nonce}:", before)
        await self.say(person, chat, f"/title {TOPIC} {title}", until=title)

    async def probe(self, person: str, chat: SampleChat, sessions: Sequence[str], files: Sequence[Path]) -> None:
        """Look for secrets of others in every possible way."""
        calls = [*RECALLING, *_reading(sessions), *(() if person == OWNER else _spying(self.program.home, files))]
        await self.have_called(person, chat, *calls)
        for command in (*COMMANDS, f"/resume {sessions[0]}", f"/resume {TOPIC} {person} sec"):
            await self.say(person, chat, command)
        nonce = new_id()
        requested = order(person, chat, nonce, *RECALLING)
        await self.say(person, chat, f"/background {requested}", until=f"done {nonce}:")
        await self.say(person, chat, f"/new {nonce}", until=f"Started a new conversation: *{nonce}*")
        self.last[person, chat] = await self.have_called(person, chat, *RECALLING)


def _has_space_for_notes(person: str, chat: SampleChat) -> bool:
    """Return whether a person's notes fit: the memory of a group is too small for the notes of twenty people."""
    return chat.kind == "private" or PEOPLE.index(person) % 5 == 0


def _reading(sessions: Sequence[str]) -> list[Ask]:
    """Return calls that read sessions by their ids."""
    return [
        call
        for session in sessions
        for call in (
            Ask("session_search", {"session": session}),
            Ask("session_search", {"session": session, "around": 1}),
            Ask("session_search", {"session": session, "query": TOPIC}),
        )
    ]


def _spying(home: Path, files: Sequence[Path]) -> list[Ask]:
    """Return calls that look for files of others."""
    folders = [home, home / "profiles" / "default", *(home / name for name in ("guests", "workspaces")), Path("..")]
    first = str(files[0])
    return [
        *(Ask("read_file", {"path": str(file)}) for file in files),
        *(Ask("list_files", {"path": str(folder), "depth": 10}) for folder in folders),
        *(Ask("search_files", {"path": str(folder), "pattern": TOPIC}) for folder in folders),
        Ask("terminal", {"command": f"cat {first}; grep -r {TOPIC} {home}"}),
        Ask("execute_code", {"code": f"print(open({first!r}).read())"}),
        Ask("vision", {"image": f"file://{first}"}),
        Ask("write_file", {"path": str(home / "profiles" / "default" / "memory" / "MEMORY.md"), "content": "x"}),
        Ask("skills", {"action": "list"}),
        Ask("send_message", {"target": "list"}),
        Ask("send_file", {"path": first}),
    ]


@asynccontextmanager
async def village(home: Path, server: ModelServer, store: str = "") -> AsyncIterator[Village]:
    """Run a gateway; when the block ends it has delivered everything."""
    server.answering(obey)
    more = home / "adapters" / "village-1.dist-info"
    more.mkdir(parents=True)
    (more / "METADATA").write_text("Metadata-Version: 2.1\nName: village\nVersion: 1\n")
    opening = "talaria.testing.loopback_platform.factory:open_platform"
    (more / "entry_points.txt").write_text(f"[talaria.platforms]\nvillage = {opening}\n")
    async with LoopbackNetwork() as loopback, LoopbackNetwork() as other:
        program = scripted_program(
            home,
            server,
            f'[access]\nowners = ["loopback:{OWNER}", "village:{OWNER}"]\neveryone = true\n'
            '[approval]\nmode = "off"\n[gateway]\ndrain_seconds = 20.0\n'
            f'[platforms.loopback.options]\naddress = "{loopback.address}"\n'
            "[platforms.village]\ngroup_sessions_per_user = false\n"
            f'[platforms.village.options]\naddress = "{other.address}"\n{store}',
        )
        process = await asyncio.create_subprocess_exec(
            TALARIA,
            "gateway",
            "run",
            env=program.environment(PYTHONPATH=str(more.parent)),
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            yield Village(program, {"loopback": loopback, "village": other})
        finally:
            process.terminate()
            async with asyncio.timeout(60):
                await process.wait()


async def _visit_all(visit: Callable[[str, SampleChat], Awaitable[None]]) -> None:
    """Let every person visit their chats: one by one in shared sessions, otherwise several at once.

    Not all at once: on a busy machine each would wait for the work of all others, longer than the limit of a wait.
    """
    several = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(chat: SampleChat, people: Sequence[str]) -> None:
        for person in people:
            async with several:
                await visit(person, chat)

    async with asyncio.TaskGroup() as group:
        for chat in CHATS:
            for people in [[one] for one in chat.people] if chat.kind == "apart" else [chat.people]:
                group.create_task(in_turn(chat, people))


async def _probe_everywhere(village: Village, sessions: dict[str, PlantedSecret], every: int) -> None:
    """Let one in ``every`` people look for secrets concurrently; in shared chats, which cost most, still fewer."""
    profile = village.program.home / "profiles" / "default"
    files = sorted(file for folder in ("media", "memory") for file in (profile / folder).rglob("*.*"))

    async def visit(person: str, chat: SampleChat) -> None:
        number = PEOPLE.index(person)
        if number % (max(4, 2 * every) if chat.kind == "shared" else every) == 0:
            foreign = [one for one, title in sessions.items() if _is_closed(title, person, chat)]
            some = foreign[number :: len(foreign) // 3]
            await village.probe(person, chat, some[:3], files[number :: len(PEOPLE)][:4])

    await _visit_all(visit)


def _is_closed(title: PlantedSecret, person: str, chat: SampleChat) -> bool:
    """Return whether a person may not resume a session in a chat; the owner may resume all of theirs."""
    if person == OWNER and title.person == OWNER:
        return False
    return not title.may_be_known_to(person, chat)


async def _sessions(village: Village) -> dict[str, PlantedSecret]:
    """Return the secret in the title of each session, by its id."""
    done = await asyncio.to_thread(village.program.run, "sessions", "list", "--limit", "1000", "--json")
    titles = {session["id"]: find_secrets(session["title"]) for session in json.loads(done.out)}
    return {one: village.planted.secrets[found[0]] for one, found in titles.items() if found}


@pytest.mark.one_engine
@pytest.mark.timeout(300)  # 6 s alone, but about 110 s where twenty processes share two cores
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_no_secret_of_one_person_is_shown_to_another(
    tmp_path: Path, server: ModelServer, engine: str, request: pytest.FixtureRequest
) -> None:
    store = ""
    if engine == "postgres":
        store_location: StoreLocation = request.getfixturevalue("postgres_location")
        store = f'[store]\nurl = "{store_location.address}"\nschema = "{store_location.schema}"\n'
    async with village(tmp_path, server, store) as here:
        await _visit_all(here.plant)
        sessions = await _sessions(here)
        assert {title.chat for title in sessions.values()} == set(CHATS)
        try:
            await _probe_everywhere(here, sessions, every=1 if request.config.getoption("--long") else 4)
        except* TimeoutError:  # report a leak rather than its effect, for example a stolen session
            _check_no_leaks(here, server)
            raise
    _check_no_leaks(here, server)
    _check_own_secrets_are_known(here, server)


def _check_no_leaks(here: Village, server: ModelServer) -> None:
    """Check that no model request and no post contains a secret that its sender or readers must not see."""
    for received in server.received:
        origin = origin_of(received)
        body = received.body.decode()
        assert (origin is None and not find_secrets(body)) or (origin and here.planted.foreign(body, *origin) == [])
    for chat in CHATS:
        readers = [one for one in CHATS if one.chat_key == chat.chat_key]
        for post in here.posts(chat):
            assert here.planted.foreign_to_all(post.text, readers) == []


def _check_own_secrets_are_known(here: Village, server: ModelServer) -> None:
    """Check that each person's own facts appear again in their last, new session."""
    for (person, chat), nonce in here.last.items():
        bodies = [received.body.decode() for received in server.received if nonce in received.question]
        known = {word for body in bodies for word in find_secrets(body)}
        if chat.kind == "shared":
            assert known
        else:
            own = here.planted.of(person, chat)
            assert {own["title"], own["noted"] if _has_space_for_notes(person, chat) else own["title"]} <= known
