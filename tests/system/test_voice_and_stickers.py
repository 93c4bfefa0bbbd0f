"""Voice notes are transcribed and replies spoken; a sticker is described once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.app.log_setup import LOG_NAME
from talaria.contracts.platform import Attachment, PlatformCapabilities
from talaria.core.addresses import Address
from talaria.core.messages import File, Message, Text
from talaria.gateway.outbound.voice_replies import VOICE_REPLY, to_speech_text
from talaria.sessions.keys import build_session_key
from talaria.testing.loopback_platform import Fault, LoopbackNetwork
from talaria.testing.model_server import Ask, Fail, ModelServer, Received, Say
from talaria.testing.telegram_server import picture
from talaria.testing.wait import until

NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True, file_limit=1_000_000)
NOTE = Attachment("v1", "voice", "voice.ogg", "audio/ogg")
TRANSCRIPTION = '[voice]\ntranscribe = "mine:hears"\n'
BOTH = f'{TRANSCRIPTION}speak = "voice-notes-only"\nspeaker = "mine:speaks"\nvoice = "coral"\n'
VISION = "[models.scripted]\nimages = true\n"


async def test_voice_note_is_transcribed_and_stored_as_a_file(tmp_path: Path, server: ModelServer) -> None:
    server.audio.transcript = "Buy milk."
    async with open_gateway(tmp_path, server, TRANSCRIPTION) as (network, gateway):
        network.say_with_file("ann", NOTE, b"OggS spoken")
        await network.posted(1)
        text, file = (await transcript(gateway))[0].parts
    assert text == Text("[voice note] Buy milk.")
    assert isinstance(file, File)
    assert [(one.model, one.data) for one in server.audio.heard] == [("hears", b"OggS spoken")]


async def test_model_is_notified_of_a_voice_note_without_transcription(tmp_path: Path, server: ModelServer) -> None:
    async with open_gateway(tmp_path, server) as (network, gateway):
        network.say_with_file("ann", NOTE, b"OggS spoken")
        await network.posted(1)
        text, file = (await transcript(gateway))[0].parts
    assert isinstance(text, Text)
    assert "voice.transcribe" in text.text
    assert isinstance(file, File)


async def test_voice_note_is_answered_although_transcription_fails(tmp_path: Path, server: ModelServer) -> None:
    server.audio.faults.append(Fail(401))
    async with open_gateway(tmp_path, server, TRANSCRIPTION) as (network, gateway):
        network.say_with_file("ann", NOTE, b"OggS spoken")
        await network.posted(1)
        text = (await transcript(gateway))[0].parts[0]
    assert isinstance(text, Text)
    assert text.text.startswith("(This voice note couldn't be transcribed: ")


async def test_missing_program_for_transcription_is_named_in_the_log(tmp_path: Path, server: ModelServer) -> None:
    settings = '[voice]\ntranscribe = "command"\ncommand = "no-such-program {file}"\n'
    async with open_gateway(tmp_path, server, settings) as (network, gateway):
        network.say_with_file("ann", NOTE, b"OggS spoken")
        await network.posted(1)
        text = (await transcript(gateway))[0].parts[0]
    assert isinstance(text, Text)
    assert "The owner's program for speech failed" in text.text
    assert "no-such-program" not in text.text
    assert "no-such-program: not found" in (gateway.application.profile.logs_folder / LOG_NAME).read_text()


async def test_transcription_that_never_ends_times_out(tmp_path: Path, server: ModelServer) -> None:
    server.audio.open.clear()
    async with LoopbackNetwork(NETWORK) as network:
        settings = f"{TRANSCRIPTION}seconds = 1\n"
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
            network.say_with_file("ann", NOTE, b"OggS spoken")
            await network.posted(1)
            text = (await transcript(gateway))[0].parts[0]
    assert isinstance(text, Text)
    assert "it took longer than 1 s" in text.text


async def test_voice_note_is_transcribed_by_a_local_command(tmp_path: Path, server: ModelServer) -> None:
    settings = '[voice]\ntranscribe = "command"\ncommand = "cat {file}"\n'
    async with open_gateway(tmp_path, server, settings) as (network, gateway):
        network.say_with_file("ann", NOTE, b"spoken words")
        await network.posted(1)
        assert (await transcript(gateway))[0].parts[0] == Text("[voice note] spoken words")


async def test_the_answer_to_a_voice_note_is_spoken_after_the_text(tmp_path: Path, server: ModelServer) -> None:
    server.audio.open.clear()
    server.otherwise(Say("**Good** morning."))
    settings = BOTH.replace(TRANSCRIPTION, '[voice]\ntranscribe = "command"\ncommand = "echo heard #"\n')
    async with open_gateway(tmp_path, server, settings) as (network, _):
        network.say_with_file("ann", NOTE, b"OggS spoken")
        await network.posted(1)
        network.say("ann", "and in writing?")
        await network.posted(2)
        server.audio.open.set()
        *written, spoken = await network.posted(3)
    assert [post.text for post in written] == ["**Good** morning."] * 2
    assert (spoken.text, spoken.files) == ("", ("voice.ogg",))
    assert [(one.model, one.input, one.voice) for one in server.audio.spoken] == [("speaks", "Good morning.", "coral")]


async def test_reply_is_posted_as_text_although_speech_synthesis_fails(tmp_path: Path, server: ModelServer) -> None:
    server.audio.faults.extend([Fail(503)])
    async with LoopbackNetwork(NETWORK) as network:
        settings = BOTH.replace("voice-notes-only", "always").replace(TRANSCRIPTION, "[voice]\n")
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings) as gateway:
            network.say("ann", "one")
            await network.posted(1)
            await wait_until_no_voice_reply_is_pending(gateway)
            network.say("ann", "two")
            posts = await network.posted(3)
    assert [(post.text, post.files) for post in posts] == [("ok", ()), ("ok", ()), ("", ("voice.ogg",))]


async def test_pending_voice_reply_is_posted_after_a_restart(tmp_path: Path, server: ModelServer) -> None:
    server.audio.open.clear()
    settings = BOTH.replace("voice-notes-only", "always")
    async with LoopbackNetwork(NETWORK) as network:
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings):
            network.say("ann", "one")
            await network.posted(1)
            await until(lambda: server.audio.spoken)
        server.audio.open.set()
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings):
            network.say("ann", "two")
            posts = await network.posted(4)
    assert sorted(post.files for post in posts) == [(), (), ("voice.ogg",), ("voice.ogg",)]


def test_speech_text_leaves_out_markup_code_and_addresses() -> None:
    text = "# News\n\n- **One** [link](https://a.test)\n- `two`\n\n```sh\nrm -rf x\n```\nsee https://a.test/x now"
    assert to_speech_text(text) == "News\nOne link\ntwo\nsee now"
    assert to_speech_text("```\ncode\n```") == ""
    assert len(to_speech_text("word " * 5_000)) <= 4_002


async def test_sticker_is_described_once(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say("A cat that\nwaves." if is_description_request(received) else "ok"))
    sticker = Attachment("s1", "sticker", "s.webp", "image/webp", unique_id="u1", hint="👋 from the set Cats")
    async with open_gateway(tmp_path, server, VISION) as (network, gateway):
        network.say_with_file("ann", sticker, picture(), text="👋")
        await network.posted(1)
        network.disrupt(Fault("fetch", "refuse", times=0))
        network.say_with_file("ann", sticker, picture())
        await network.posted(2)
        first, _, second, _ = await transcript(gateway)
    shown = Text("[sticker 👋 from the set Cats: A cat that waves.]")
    assert first.parts == (Text("👋"), shown)
    assert second.parts == (shown,)
    assert sum(map(is_description_request, server.received)) == 1


async def test_sticker_that_no_model_can_see_has_the_description_of_the_network(
    tmp_path: Path, server: ModelServer
) -> None:
    still = Attachment("s1", "sticker", "s.webp", "image/webp", unique_id="u1", hint="🎉")
    moving = Attachment(
        "s2", "sticker", "s.tgs", "application/x-tgsticker", unique_id="u2", hint="👋 from the set Cats"
    )
    async with open_gateway(tmp_path, server) as (network, gateway):
        network.say_with_file("ann", still, picture())
        network.say_with_file("ann", moving, b"\x1f\x8b")
        await network.posted(2)
        first, _, second, _ = await transcript(gateway)
    assert (first.parts, second.parts) == ((Text("[sticker 🎉]"),), (Text("[sticker 👋 from the set Cats]"),))


@asynccontextmanager
async def open_gateway(
    home: Path, server: ModelServer, settings: str = ""
) -> AsyncIterator[tuple[LoopbackNetwork, InProcessGateway]]:
    async with (
        LoopbackNetwork(NETWORK) as network,
        run_gateway(home, network.platform(), server.url, settings=settings) as gateway,
    ):
        yield network, gateway


def is_description_request(received: Received) -> bool:
    return "This is a sticker" in received.question


async def wait_until_no_voice_reply_is_pending(gateway: InProcessGateway) -> None:
    await until(lambda: gateway.application.store.read(lambda tx: not VOICE_REPLY.of_all(tx)))


async def transcript(gateway: InProcessGateway) -> list[Message]:
    key = build_session_key(Address("loopback", "ann", user_id="ann"))
    bound = await gateway.application.store.read(lambda tx: tx.bindings.get(key))
    assert bound is not None
    stored = await gateway.application.store.read(lambda tx: tx.messages.load(bound.session_id))
    return [one.message for one in stored]


def files_shown(network: LoopbackNetwork) -> list[tuple[str, ...]]:
    return [post.files for post in network.posts if post.files]


async def test_voice_option_of_a_chat_survives_a_restart(tmp_path: Path, server: ModelServer) -> None:
    settings = '[voice]\nspeaker = "mine:speaks"\n'
    async with LoopbackNetwork(NETWORK) as network:
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings):
            network.say("ann", "/voice")
            network.say("ann", "/voice loud")
            network.say("ann", "/voice on")
            shown = [post.text for post in await network.posted(3)]
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings):
            network.say("ann", "one")
            await until(lambda: len(server.audio.spoken) == 1)
            await until(lambda: files_shown(network) == [("voice.ogg",)])
            network.say("ann", "/voice off")
            await until(lambda: network.posts[-1].text == "Replies in this chat aren't spoken.")
            network.say("ann", "two")
            await until(lambda: network.posts[-1].text == "ok")
    assert shown[0].startswith("Spoken replies: off (`voice.speak`).")
    assert "Use `on`, `off` or `default`" in shown[1]
    assert shown[2] == "Replies in this chat are also spoken."
    assert len(server.audio.spoken) == 1


async def test_voice_on_is_refused_without_a_speech_model(tmp_path: Path, server: ModelServer) -> None:
    async with open_gateway(tmp_path, server) as (network, _):
        network.say("ann", "/voice on")
        (post,) = await network.posted(1)
    assert post.text.startswith("Nothing can speak yet.")


async def test_images_and_speech_are_sent_to_the_chat_as_files(tmp_path: Path, server: ModelServer) -> None:
    settings = 'owners = ["loopback:ann"]\n[images]\ngenerate = "mine:draws"\n[voice]\nspeaker = "mine:speaks"\n'
    server.script(
        Say(calls=[Ask("image_generate", {"prompt": "a fox"}), Ask("speak", {"text": "Good morning"})]), Say("Here.")
    )
    async with open_gateway(tmp_path, server, settings) as (network, _):
        network.say("ann", "a fox, and say good morning")
        await until(lambda: len(files_shown(network)) == 2)
    assert sorted(files_shown(network)) == [("a-fox.png",), ("speech.ogg",)]
    assert [request.prompt for request in server.images.requests] == ["a fox"]
    assert [request.input for request in server.audio.spoken] == ["Good morning"]
