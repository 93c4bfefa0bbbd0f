"""Live settings of chats take effect in a running gateway, in open sessions."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.app.serving_process import SECONDS, Process, process

from talaria.contracts.platform import Attachment
from talaria.core.addresses import Address
from talaria.core.aio import StopSignal
from talaria.testing.loopback_platform import Fault, LoopbackNetwork
from talaria.testing.model_server import Ask, Received, Say
from talaria.testing.telegram_server import picture

BASE = """
[model]
provider = "mine"
name = "scripted"
[access]
owners = ["loopback:ann"]
allowed = ["loopback:bob", "loopback:eve", "sammy"]
[people.sammy]
ids = ["loopback:nobody"]
[platforms.loopback]
enabled = true
options = {{ address = "{address}" }}
"""
CLUB = Address("loopback", "club", "group")
THREAD = Address("loopback", "club", "thread", thread_id="7")
CODE, REPLY, SILENCE = "code", "re: hello", ""
FILE = Attachment("f1", "document", "notes.txt")
VOICE = Attachment("v1", "voice", "note.ogg", media_type="audio/ogg")


@dataclass
class Gateway:
    """A gateway in this process, the network that it serves, and a model that repeats messages."""

    here: Process
    network: LoopbackNetwork
    held: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, received: Received) -> Say:
        text, last = received.question, received.json["messages"][-1]
        if "at most six words" in text:
            return Say("Title")
        if "LOOK" in text and last["role"] != "tool":
            return Say(calls=[Ask("list_files", {})])
        if "THINK" in text:  # long enough for a preview of the reasoning before the reply
            return Say("re: THINK", reasoning="pondering " * 20, pause=0.15)
        if "HOLD" in text:
            self.held.set()
            await self.released.wait()
        return Say("long " * 500 if "LONG" in text else f"re: {text}")

    async def replies(
        self,
        text: str,
        *,
        chat_address: str | Address = "bob",
        sender: str = "bob",
        pattern: str = "",
        at: datetime | None = None,
    ) -> str:
        """Send a message, wait for a reply that matches ``pattern``, if given, and return the shown text."""
        chat, thread = (
            (chat_address, "") if isinstance(chat_address, str) else (chat_address.chat_id, chat_address.thread_id)
        )
        known = len(self.network.shown(chat, thread))

        def shown() -> str:
            return "\n".join(self.network.shown(chat, thread)[known:])

        self.network.say(chat_address, text, sender=sender, at=at)
        if pattern:
            await self.network.until(lambda: re.search(pattern, shown()) is not None)
        else:  # a later message is answered, so this one was processed
            await self.replies("and now?", chat_address="ann", sender="ann", pattern="re: and now")
        return shown()


@asynccontextmanager
async def gateway(home: Path, settings: str = "") -> AsyncIterator[Gateway]:
    async with LoopbackNetwork() as network, process(home, BASE.format(address=network.address) + settings) as here:
        stop, chats = StopSignal(), Gateway(here, network)
        here.server.answering(chats.answer)
        serving = here.jobs.create_task(here.application.serve_gateway(stop, as_worker=True))
        try:
            yield chats
        finally:
            chats.released.set()
            stop.request_stop("the test is over")
            await serving


@dataclass(frozen=True)
class Case:
    """Answers to a sender before and after a setting gets a value; ``later`` is the sender after it."""

    value: str
    before: str
    after: str
    text: str = "hello"
    sender: str = "sam"
    chat_address: str | Address = ""
    later: str = ""


ANSWERS = {
    "access.owners": Case('["loopback:ann", "loopback:sam"]', CODE, REPLY),
    "access.allowed": Case('["loopback:sam"]', CODE, REPLY),
    "access.chats": Case('["loopback:club"]', SILENCE, REPLY, chat_address=CLUB),
    "access.blocked": Case('["loopback:bob"]', REPLY, SILENCE, sender="bob"),
    "access.pairing": Case("false", CODE, SILENCE, later="sid"),
    "access.everyone": Case("true", CODE, REPLY),
    "access.slash_access": Case('{ title = ["loopback:ann"] }', "title", "owner", text="/title", sender="bob"),
    "platforms.loopback.allowed": Case('["sam"]', CODE, REPLY),
    "platforms.loopback.chats": Case('["club"]', SILENCE, REPLY, chat_address=CLUB),
    "platforms.loopback.everyone": Case("true", CODE, REPLY),
    "platforms.loopback.footer": Case("true", "^re: hello$", r"re: hello\n\n`scripted`", sender="bob"),
    "people.sammy.ids": Case('["loopback:sam"]', CODE, REPLY),
    "gateway.reply_characters": Case("1000", r"(long ){300}", r"attached|file", text="LONG", sender="bob"),
}


@pytest.mark.parametrize("key", sorted(ANSWERS))
async def test_live_chat_setting_applies_to_the_next_message(tmp_path: Path, key: str) -> None:
    case = ANSWERS[key]
    async with gateway(tmp_path) as chats:
        before = await chats.replies(
            case.text, chat_address=case.chat_address or case.sender, sender=case.sender, pattern=case.before
        )
        assert bool(before) == bool(case.before)
        assert not case.after or not re.search(case.after, before)
        await chats.here.write(key, case.value)
        later = case.later or case.sender
        after = await chats.replies(
            case.text, chat_address=case.chat_address or later, sender=later, pattern=case.after
        )
        assert bool(after) == bool(case.after)


async def _prompts(chats: Gateway) -> object:
    await chats.replies("/new", pattern="new")
    await chats.replies("hello", pattern=REPLY)
    return any("be brief" in one.body.decode() for one in chats.here.server.received)


async def _reactions(chats: Gateway) -> object:
    await chats.replies("hello", pattern=REPLY)
    return any(record.kind == "reaction" for record in chats.network.records)


async def _progress(chats: Gateway) -> object:
    known, options = len(chats.network.records), chats.here.application.settings.platforms["loopback"]

    def shown() -> bool:
        return any("✓" in record.text for record in chats.network.records[known:])

    chats.released.clear()
    chats.network.say("bob", "LOOK and HOLD", sender="bob")
    if options.streaming and options.progress != "off":
        await chats.network.until(shown)
    chats.released.set()
    await chats.network.until(lambda: any("re: LOOK" in text for text in chats.network.shown("bob")[-1:]))
    return shown()


def _shares(chat_address: Address) -> Callable[[Gateway], Awaitable[object]]:
    async def look(chats: Gateway) -> object:
        await chats.replies("I am Bob", chat_address=chat_address, pattern="I am Bob")
        await chats.replies("I am Eve", chat_address=chat_address, sender="eve", pattern="I am Eve")
        (request,) = [one for one in chats.here.server.received[-2:] if "I am Eve" in one.question][-1:]
        return any("I am Bob" in str(message["content"]) for message in request.json["messages"])

    return look


async def _questions_with_file(chats: Gateway, file: Attachment, data: bytes) -> str:
    """Return the questions to models after a file was sent and answered."""
    known = len(chats.network.shown("bob"))
    chats.here.server.received.clear()
    chats.network.say_with_file("bob", file, data, sender="bob")
    await chats.network.until(lambda: len(chats.network.shown("bob")) > known)
    return " ".join(one.question for one in chats.here.server.received)


async def _reasoning(chats: Gateway) -> object:
    await chats.replies("THINK", pattern="re: THINK$")
    return any("pondering" in record.text for record in chats.network.records)


async def _starts_new_session(chats: Gateway) -> object:
    """Return whether a message three hours after the first one of a chat starts a new session."""
    person = "eve" if chats.network.shown("bob") else "bob"
    await chats.replies("hello", chat_address=person, sender=person, pattern=REPLY)
    later = datetime.now(UTC) + timedelta(hours=3)
    shown = await chats.replies("later", chat_address=person, sender=person, pattern="re: later", at=later)
    return "this is a new conversation" in shown


async def _background_task_starts(chats: Gateway) -> object:
    return "bg-" in await chats.replies("/background HOLD", pattern="bg-|isn't possible")


async def _fetch_times_out(chats: Gateway) -> object:
    chats.network.disrupt(Fault("fetch", "delay", seconds=1.2))
    return "arrive within" in await _questions_with_file(chats, FILE, b"notes")


async def _sticker_is_described(chats: Gateway) -> object:
    animal = "dog" if chats.network.shown("bob") else "cat"
    sticker = Attachment("s", "sticker", "s.webp", "image/webp", unique_id=animal, hint=animal)
    return f"[sticker {animal}: re:" in await _questions_with_file(chats, sticker, picture())


async def _largest_file(chats: Gateway) -> object:
    return "; the limit is" in await _questions_with_file(chats, FILE, b"x" * 2000)


def _transcribes(pattern: str) -> Callable[[Gateway], Awaitable[object]]:
    async def look(chats: Gateway) -> object:
        return pattern in await _questions_with_file(chats, VOICE, b"spoken")

    return look


async def _speaks(chats: Gateway) -> object:
    await chats.replies("hello", pattern=REPLY)
    voice = chats.here.application.settings.voice
    if voice.speak == "always" and "OggS" in voice.speak_command:
        await chats.network.until(lambda: any(post.files for post in chats.network.posts))
    return any(post.files for post in chats.network.posts)


async def _voice(chats: Gateway) -> object:
    known = len(chats.here.server.audio.spoken)
    await chats.replies("hello", pattern=REPLY)
    await chats.here.until(lambda: len(chats.here.server.audio.spoken) > known)
    return chats.here.server.audio.spoken[-1].voice, chats.here.server.audio.spoken[-1].model


TRANSCRIBES = '[voice]\ntranscribe = "command"\ncommand = "echo first #"\n'
TALKS = '[voice]\nspeak = "always"\nspeaker = "mine:speaks"\n'
SPEAKS = '[voice]\nspeaker = "command"\nspeak_command = "echo OggS >{file}"\n'
SPOILT = SPEAKS.replace("OggS", "noise") + 'speak = "always"\n'
SLOW = TRANSCRIBES.replace("echo first", "sleep 1.2; echo first")
NOW = datetime.now(UTC)


def _hour_after(hours: int) -> str:
    return str((NOW + timedelta(hours=hours)).hour)


EFFECTS: dict[str, tuple[str, str, Callable[[Gateway], Awaitable[object]]]] = {
    "platforms.loopback.prompts": ('{ bob = "be brief" }', "", _prompts),
    "platforms.loopback.reactions": ("true", "", _reactions),
    "platforms.loopback.progress": ('"off"', "", _progress),
    "platforms.loopback.streaming": ("false", "", _progress),
    "platforms.loopback.reasoning": ("true", "", _reasoning),
    "platforms.loopback.reset": ('"idle"', "reset_idle_minutes = 60\n", _starts_new_session),
    "platforms.loopback.reset_idle_minutes": ("60", 'reset = "idle"\n', _starts_new_session),
    "platforms.loopback.reset_hour": (
        _hour_after(2),
        f'reset = "daily"\nreset_hour = {_hour_after(12)}\n[cli]\ntime_zone = "UTC"\n',
        _starts_new_session,
    ),
    "delegation.background": ("1", "", _background_task_starts),
    "platforms.loopback.group_sessions_per_user": ("false", "", _shares(CLUB)),
    "platforms.loopback.thread_sessions_per_user": ("true", "", _shares(THREAD)),
    "media.file_megabytes": ("0.001", "", _largest_file),
    "media.fetch_seconds": ("1.0", "", _fetch_times_out),
    "media.describe_stickers": ("false", "[models.scripted]\nimages = true\n", _sticker_is_described),
    "voice.seconds": ("1.0", SLOW, _transcribes("longer than 1 s")),
    "voice.transcribe": ('"command"', TRANSCRIBES.replace('transcribe = "command"\n', ""), _transcribes("first")),
    "voice.command": ('"echo second #"', TRANSCRIBES, _transcribes("second")),
    "voice.speak": ('"always"', SPEAKS, _speaks),
    "voice.speak_command": ('"echo OggS >{file}"', SPOILT, _speaks),
    "voice.speaker": ('"mine:other"', TALKS, _voice),
    "voice.voice": ('"coral"', TALKS, _voice),
}


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(EFFECTS))
async def test_live_chat_setting_applies_to_the_next_turn(tmp_path: Path, key: str) -> None:
    value, settings, look = EFFECTS[key]
    async with gateway(tmp_path, settings) as chats:
        before = await look(chats)
        await chats.here.write(key, value)
        assert await look(chats) != before


async def test_changed_busy_setting_applies_to_a_message_during_a_turn(tmp_path: Path) -> None:
    async with gateway(tmp_path) as chats:
        chats.network.say("bob", "HOLD", sender="bob")
        async with asyncio.timeout(SECONDS):
            await chats.held.wait()
        await chats.here.write("gateway.busy", '"interrupt"')
        await chats.replies("instead", pattern="re: instead")
    assert not any("HOLD" in text for text in chats.network.shown("bob"))


SHOWN_IN_CHATS = {*ANSWERS, *EFFECTS, "gateway.busy"}
