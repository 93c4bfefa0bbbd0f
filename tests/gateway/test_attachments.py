"""Attachments are fetched before their turns, within limits, and without delaying other chats."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.app.gateway.media import open_media
from talaria.contracts.platform import Attachment, PlatformCapabilities
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import PlatformError
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Text
from talaria.runtime.turns import InboxMessage, PendingAttachments
from talaria.sessions.keys import build_session_key
from talaria.settings.profiles import Profiles
from talaria.testing.clock import NOON
from talaria.testing.loopback_platform import Fault, LoopbackNetwork, LoopbackPlatform, LoopbackSettings
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.telegram_server import picture

NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True, file_limit=1_000_000)
NOTES = Attachment("f1", "document", "notes.txt", "text/plain")
PHOTO = Attachment("f2", "picture", "photo.png", "image/png")


async def test_attachment_is_stored_in_the_folder_of_its_session(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(NETWORK) as network, run_gateway(tmp_path, network.platform(), server.url) as gateway:
        network.say_with_file("ann", NOTES, b"buy milk", text="look")
        await network.posted(1)
        text, file = (await first_message(gateway, "ann")).parts
        session_id = session_of(gateway, "ann")
    assert text == Text("look")
    assert isinstance(file, File)
    assert (file.name, file.media_type, content(file)) == ("notes.txt", "text/plain", b"buy milk")
    assert session_id in Path(file.source).parts


async def test_picture_is_recognised_by_its_content(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(NETWORK) as network, run_gateway(tmp_path, network.platform(), server.url) as gateway:
        network.say_with_file("ann", PHOTO, picture())
        network.say_with_file("bob", Attachment("f3", "picture", "photo.png", "image/png"), b"no picture", sender="bob")
        await network.posted(2)
        (real,), (false,) = (await first_message(gateway, "ann")).parts, (await first_message(gateway, "bob")).parts
    assert isinstance(real, Image)
    assert isinstance(false, File)


@pytest.mark.slow
async def test_hanging_fetch_delays_no_other_chat(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(NETWORK) as network:
        network.disrupt(Fault("fetch", "hang", times=0))
        platform = network.platform(patience=60)
        async with run_gateway(tmp_path, platform, server.url, settings="[media]\nfetch_seconds = 4\n"):
            network.say_with_file("ann", NOTES, b"buy milk", text="look")
            network.say("ann", "and then?")
            network.say("bob", "hello", sender="bob")
            await network.until(lambda: len(network.shown("ann")) == 2)
    earliest = network.posts[0]
    assert (earliest.address.chat_id, earliest.text) == ("bob", "re: hello")
    first, second = network.shown("ann")
    assert first == "re: look\n\n(The file notes.txt could not be downloaded: it didn't arrive within 4 s.)"
    assert second == "re: and then?"


async def test_attachment_over_the_limit_is_reported_and_not_stored(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    announced = Attachment("f3", "document", "huge.bin", size=1_000_000_000)
    async with LoopbackNetwork(NETWORK) as network:
        settings = "[media]\nfile_megabytes = 0.1\n"
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
            network.say_with_file("ann", NOTES, b"x" * 200_000)
            network.say_with_file("bob", announced, b"x", sender="bob")
            await network.posted(2)
            stored = [file for file in gateway.application.profile.media_folder.rglob("*") if file.is_file()]
    assert network.shown("ann")[0].endswith("could not be downloaded: it has 0.2 MB; the limit is 0.1 MB.)")
    assert network.shown("bob")[0].endswith("could not be downloaded: it has 1000.0 MB; the limit is 0.1 MB.)")
    assert stored == []


async def test_redelivered_attachment_is_answered_once(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(NETWORK) as network, run_gateway(tmp_path, network.platform(), server.url) as gateway:
        network.say_with_file("ann", NOTES, b"buy milk", deliveries=3)
        network.say("ann", "and then?")
        await network.posted(2)
        stored = [file for file in gateway.application.profile.media_folder.rglob("*") if file.is_file()]
    assert network.shown("ann") == ["ok", "ok"]
    assert len(stored) == 1


async def test_stopping_the_turn_cancels_the_fetch(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(NETWORK) as network:
        network.disrupt(Fault("fetch", "hang"))
        async with run_gateway(tmp_path, network.platform(patience=60), server.url) as gateway:
            network.say_with_file("ann", NOTES, b"buy milk", text="look")
            await network.until(lambda: not network.faults)
            room = gateway.chats.find(build_session_key(Address("loopback", "ann", user_id="ann")))
            assert room is not None
            assert room.active_session.chat.conversation.stop()
            await network.until(lambda: network.shown("ann") == ["Stopped."])
            network.say("ann", "and now?")
            await network.until(lambda: network.shown("ann") == ["Stopped.", "ok"])
    (call,) = server.received
    assert "was not downloaded, because the turn was stopped" in call.body.decode()


async def test_steering_message_with_a_file_waits_for_its_own_turn(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say("slow " * 40, calls=[Ask("list_files", {})], pause=0.05), Say("first"), Say("second"))
    async with LoopbackNetwork(NETWORK) as network:
        settings = '[gateway]\nbusy = "steer"\n'
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
            network.say("ann", "begin")
            await server.arrived(1)
            network.say_with_file("ann", NOTES, b"buy milk", text="look")
            network.say("ann", "well?")
            await network.until(lambda: network.shown("ann")[:2] == ["first", "second"])
            messages = await transcript(gateway, "ann")
    assert [message.role for message in messages[:4]] == ["user", "assistant", "tool", "assistant"]
    assert messages[4].text == "look"


async def test_interrupting_message_waits_for_the_fetch_of_the_interrupted_turn(
    tmp_path: Path, server: ModelServer
) -> None:
    async with LoopbackNetwork(NETWORK) as network:
        network.disrupt(Fault("fetch", "delay", seconds=1.5))
        settings = '[gateway]\nbusy = "interrupt"\n'
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
            network.say_with_file("ann", NOTES, b"buy milk", text="look")
            await network.until(lambda: not network.faults)
            network.say("ann", "what is it?")
            await network.until(lambda: network.shown("ann") == ["Stopped.", "ok"])
            first = await first_message(gateway, "ann")
    assert [type(part) for part in first.parts] == [Text, File]
    assert [call.question.splitlines()[-1] for call in server.received][-1] == "what is it?"


async def test_attachments_over_the_maximum_number_are_only_counted(tmp_path: Path, server: ModelServer) -> None:
    async with LoopbackNetwork(NETWORK) as network, run_gateway(tmp_path, network.platform(), server.url) as gateway:
        network.say_with_file("ann", NOTES, b"buy milk")
        await network.posted(1)
        files = tuple(Attachment("f1", "document", f"{number}.txt") for number in range(23))
        pending = InboxMessage(
            role="user", parts=(), at=NOON, route=ReplyRoute(Address("loopback", "ann")), attachments=files
        )
        async with AsyncExitStack() as stack:
            media = open_media(gateway.application, {"loopback": network.platform()}, stack)
            message = await media.attachment_fetcher.unpack(PendingAttachments(SessionId("s"), 1, pending))
    *fetched, note = message.parts
    assert [part.name for part in fetched if isinstance(part, File)] == [f"{number}.txt" for number in range(20)]
    assert note == Text("(3 more files were not downloaded.)")


class BuggyPlatform(LoopbackPlatform):
    """An adapter with bugs."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        if attachment.name == "outside":
            return Path(__file__)
        if attachment.name == "secret":
            raise PlatformError("https://network.test/sesame-1234/file did not answer.")
        raise KeyError(attachment.name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("outside", "it was saved in the wrong folder"),
        ("secret", "/file did not answer.)"),
        ("bug", "something went wrong here"),
    ],
)
async def test_fetch_error_of_an_adapter_is_reported_for_that_file_only(
    tmp_path: Path, server: ModelServer, name: str, why: str
) -> None:
    write_secret(tmp_path, "TELEGRAM_BOT_TOKEN=sesame-1234\n")
    async with LoopbackNetwork(NETWORK) as network:
        platform = BuggyPlatform(LoopbackSettings(address=network.address, abilities=NETWORK))
        async with run_gateway(tmp_path, platform, server.url) as gateway:
            network.say_with_file("ann", Attachment("f", "document", name), b"x", text="look")
            await network.posted(1)
            text, note = (await first_message(gateway, "ann")).parts
        platform.close()
    assert text == Text("look")
    assert isinstance(note, Text)
    assert note.text.startswith(f"(The file {name} could not be downloaded: ")
    assert why in note.text
    assert "sesame" not in note.text


def content(file: File) -> bytes:
    return Path(file.source).read_bytes()


def write_secret(home: Path, line: str) -> None:
    folder = Profiles(home).active().folder
    folder.mkdir(mode=0o700, parents=True)
    (folder / ".env").write_text(line)
    (folder / ".env").chmod(0o600)


def session_of(gateway: InProcessGateway, chat: str) -> str:
    room = gateway.chats.find(build_session_key(Address("loopback", chat, user_id=chat)))
    assert room is not None
    return room.active_session.session_id


async def transcript(gateway: InProcessGateway, chat: str) -> list[Message]:
    key = build_session_key(Address("loopback", chat, user_id=chat))
    bound = await gateway.application.store.read(lambda tx: tx.bindings.get(key))
    assert bound is not None
    stored = await gateway.application.store.read(lambda tx: tx.messages.load(bound.session_id))
    return [one.message for one in stored]


async def first_message(gateway: InProcessGateway, chat: str) -> Message:
    """Return the first message of a chat."""
    return (await transcript(gateway, chat))[0]
