"""Files that people send to a gateway process: fetched again after a kill, and still answered once."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running, shown

from talaria.contracts.platform import Attachment
from talaria.testing.loopback_platform import Fault, LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.media import OGG, PNG
from talaria.testing.telegram_server import Document, Photo, Sticker, TelegramServer, Voice, picture
from talaria.testing.wait import until

NOTES = Attachment("f1", "document", "notes.txt", "text/plain")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, network: LoopbackNetwork) -> Program:
    return scripted_program(
        tmp_path,
        server,
        '[access]\nowners = ["loopback:ann"]\nallowed = ["loopback:bob"]\n[gateway]\nlease_seconds = 1.0\n'
        f'[platforms.loopback.options]\naddress = "{network.address}"\n',
    )


async def test_gateway_killed_during_a_download_fetches_again_and_answers_once(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    server.answering(lambda received: Say(f"re: {len(received.question.splitlines())} lines"))
    network.disrupt(Fault("fetch", "hang"))
    async with running(program) as process:
        network.say_with_file("ann", NOTES, b"buy milk", text="look", deliveries=3)
        network.say("ann", "and then?")
        network.say("bob", "hello", sender="bob")
        await shown(network, "bob", "re: 1 lines")
        await until(lambda: not network.faults)
        assert network.shown("ann") == []
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with running(program):
        await shown(network, "ann", "re: 3 lines", "re: 1 lines")
    stored = list((program.home / "profiles" / "default" / "media").rglob("*notes.txt"))
    assert [file.read_bytes() for file in stored] == [b"buy milk"]


async def test_stop_works_while_files_are_fetched(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    network.disrupt(Fault("fetch", "hang"))
    async with running(program):
        network.say_with_file("ann", NOTES, b"buy milk")
        await until(lambda: not network.faults)
        network.say("ann", "/stop")
        await until(lambda: "Stopped." in network.shown("ann"))
        network.say("ann", "and now?")
        await until(lambda: network.shown("ann")[-1] == "ok")
    assert network.shown("ann").count("ok") == 1


async def test_pictures_and_documents_pass_between_telegram_and_the_model(tmp_path: Path, server: ModelServer) -> None:
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["telegram:{ann.id}"]\n[models.scripted]\nimages = true\n'
            f'[images]\ngenerate = "mine:draws"\n[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        server.answer_when(lambda received: received.is_title_request, Say("A title"))
        server.script(Say("A picture."))
        server.otherwise(Say("A list."))
        chat = telegram.private(ann)
        async with running(program):
            await chat.sends(ann, Photo(picture()), caption="what is this?")
            await chat.wait_for(lambda message: message.text == "A picture.")
            sent = await chat.sends(ann, Document(b"buy milk", "list.txt", "text/plain"))
            telegram.redeliver(sent, times=3)
            await chat.wait_for(lambda message: message.text == "A list.")
            server.script(Say(calls=[Ask("image_generate", {"prompt": "a fox"})]), Say("Here it is."))
            await chat.says(ann, "draw a fox")
            drawn = await chat.wait_for(lambda message: message.media is not None)
            await chat.wait_for(lambda message: message.text == "Here it is.")
    assert drawn.media is not None
    assert (drawn.media.kind, drawn.media.file.data) == ("photo", PNG)
    first = server.received[0].json["messages"][-1]["content"]
    assert {"type": "text", "text": "what is this?"} in first
    assert any(part["type"] == "image_url" for part in first)
    assert any("list.txt" in call.question for call in server.received)
    assert len(chat.answers) == 4


async def test_file_sent_by_the_agent_is_delivered_after_a_kill(
    program: Program, network: LoopbackNetwork, server: ModelServer
) -> None:
    folder = program.home / "workspaces" / "default"
    folder.mkdir(parents=True)
    (folder / "figures.csv").write_bytes(b"a,b")
    server.script(
        Say(calls=[Ask("send_file", {"path": "figures.csv", "caption": "Here."})]), Say("slow " * 100, pause=0.1)
    )
    network.disrupt(Fault("post", "unreachable", times=0))
    async with running(program) as process:
        network.say("ann", "send me the figures")
        await server.arrived(2)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (folder / "figures.csv").unlink()
    network.disrupt()
    server.script(Say("It is on its way."))
    async with running(program):
        await shown(network, "ann", "Here.", "", "It is on its way.")
    assert [post.files for post in network.posts if post.files] == [("figures.csv",)]


async def test_voice_note_on_telegram_is_answered_with_a_voice_note(tmp_path: Path, server: ModelServer) -> None:
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["telegram:{ann.id}"]\n[voice]\ntranscribe = "mine:hears"\n'
            'speak = "voice-notes-only"\nspeaker = "mine:speaks"\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        server.audio.transcript = "What time is it?"
        server.otherwise(Say("Noon."))
        chat = telegram.private(ann)
        async with running(program):
            await chat.sends(ann, Voice())
            await chat.wait_until(lambda: len(chat.answers) == 2)
    text, spoken = chat.answers
    assert text.text == "Noon."
    assert spoken.media is not None
    assert (spoken.media.kind, spoken.media.file.data) == ("voice", OGG)
    assert any("[voice note] What time is it?" in call.question for call in server.received)


async def test_a_sticker_on_telegram_is_described_once(tmp_path: Path, server: ModelServer) -> None:
    async with TelegramServer() as telegram:
        ann = telegram.user("Ann")
        program = scripted_program(
            tmp_path,
            server,
            f'[access]\nowners = ["telegram:{ann.id}"]\n[models.scripted]\nimages = true\n'
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n',
            f"TELEGRAM_BOT_TOKEN={telegram.token}\n",
        )
        server.answering(lambda call: Say("A cat that waves." if "This is a sticker" in call.question else "ok"))
        chat = telegram.private(ann)
        async with running(program):
            for count in (1, 2):
                await chat.sends(ann, Sticker("👋"))
                await chat.wait_until(lambda count=count: len(chat.answers) == count)  # type: ignore[misc]
    assert any("[sticker 👋: A cat that waves.]" in call.question for call in server.received)
    assert sum("This is a sticker" in call.question for call in server.received) == 1


async def test_voice_reply_is_posted_after_a_kill_during_speech_synthesis(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    program = scripted_program(
        tmp_path,
        server,
        '[access]\nowners = ["loopback:ann"]\n[voice]\nspeak = "always"\nspeaker = "mine:speaks"\n'
        f'[platforms.loopback.options]\naddress = "{network.address}"\n',
    )
    server.audio.open.clear()
    async with running(program) as process:
        network.say("ann", "one")
        await shown(network, "ann", "ok")
        await until(lambda: server.audio.spoken)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    server.audio.open.set()
    async with running(program):
        network.say("ann", "two")
        await until(lambda: len(_spoken(network)) >= 2)
    assert _spoken(network) == [("voice.ogg",), ("voice.ogg",)]


def _spoken(network: LoopbackNetwork) -> list[tuple[str, ...]]:
    """Return the posted recordings; text may be posted twice around a kill."""
    return [post.files for post in network.posts if post.files]
