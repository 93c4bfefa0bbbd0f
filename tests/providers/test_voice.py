"""Hearing and speaking: over the audio routes, by commands, and what goes wrong with either."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from talaria.core.errors import (
    BadKey,
    MalformedReply,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
    ReplyTooLong,
)
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.media import (
    AudioServer,
    AudioSpeaker,
    AudioTranscriber,
    CommandSpeaker,
    CommandTranscriber,
    VoiceCommandFailed,
)
from talaria.testing.model_server import Fail, ModelServer
from talaria.testing.model_server.media import OGG, ReceivedRecording, SpeechRequest
from talaria.testing.wait import until

ENVIRONMENT = {"PATH": os.defpath}
SOUND = b"OggS\r\n--talaria\r\nsound\x00\xff"


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


@pytest.fixture
def note(tmp_path: Path) -> Path:
    file = tmp_path / 'a "strange" näme.ogg'
    file.write_bytes(SOUND)
    return file


def at(server: ModelServer, key: str = "k", seconds: float = 10) -> AudioServer:
    within = timedelta(seconds=seconds)
    return AudioServer(
        name="test",
        base_url=f"{server.url}/v1/",
        headers={"Authorization": f"Bearer {key}"},
        timeouts=Timeouts(within, within, within),
    )


async def test_a_recording_becomes_words(server: ModelServer, http: HttpPool, note: Path) -> None:
    server.audio.transcript = "  Grüß Gott. \n"
    assert await AudioTranscriber(at(server), http, "hears-well").transcribe(note, "audio/ogg") == "Grüß Gott."
    assert server.audio.heard == [ReceivedRecording("hears-well", "a _strange_ näme.ogg", "audio/ogg", SOUND)]


async def test_words_become_a_recording(server: ModelServer, http: HttpPool) -> None:
    spoken = await AudioSpeaker(at(server), http, "speaks-well", "coral").speak("Good morning.")
    assert (spoken.data, spoken.media_type) == (OGG, "audio/ogg")
    assert server.audio.spoken == [SpeechRequest("speaks-well", "Good morning.", "coral", "opus")]


async def test_the_vendors_library_finds_the_same_routes(server: ModelServer, note: Path) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        heard = await client.audio.transcriptions.create(model="m", file=("note.ogg", SOUND, "audio/ogg"))
        spoken = await client.audio.speech.create(model="m", voice="alloy", input="Hi", response_format="opus")
    assert heard.text == server.audio.transcript
    assert spoken.content == OGG


@pytest.mark.parametrize(("status", "kind"), [(401, BadKey), (503, ProviderOverloaded)])
async def test_refusals_are_errors_of_ours(
    server: ModelServer, http: HttpPool, note: Path, status: int, kind: type[ProviderError]
) -> None:
    server.audio.faults.extend([Fail(status), Fail(status)])
    with pytest.raises(kind):
        await AudioTranscriber(at(server), http, "m").transcribe(note, "audio/ogg")
    with pytest.raises(kind):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")


async def test_what_is_no_sound_is_not_taken_for_it(server: ModelServer, http: HttpPool) -> None:
    server.audio.speech = b"<html>"
    with pytest.raises(MalformedReply, match="Ogg"):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")
    server.audio.speech = b"OggS" + bytes(26_000_000)
    with pytest.raises(ReplyTooLong, match="more than"):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")


async def test_a_server_that_never_answers_is_given_up(server: ModelServer, http: HttpPool, note: Path) -> None:
    server.audio.open.clear()
    with pytest.raises(ProviderUnreachable):
        await AudioTranscriber(at(server, seconds=0.2), http, "m").transcribe(note, "audio/ogg")


async def test_a_file_that_is_gone_is_said_to_be(server: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    with pytest.raises(ProviderUnreachable, match=r"can't read gone\.ogg"):
        await AudioTranscriber(at(server), http, "m").transcribe(tmp_path / "gone.ogg", "audio/ogg")


@pytest.mark.parametrize("command", ["wc -c < {file}", "cat {file} | wc -c"])
async def test_a_command_hears_what_it_is_given(note: Path, command: str) -> None:
    heard = await CommandTranscriber(command, ENVIRONMENT).transcribe(note, "audio/ogg")
    assert heard == str(len(SOUND))


async def test_a_command_without_a_place_gets_the_file_last(note: Path) -> None:
    assert await CommandTranscriber("basename", ENVIRONMENT).transcribe(note, "audio/ogg") == note.name


async def test_a_command_that_fails_says_why(note: Path) -> None:
    with pytest.raises(VoiceCommandFailed, match="ended with exit code 3: no microphone") as failed:
        await CommandTranscriber("echo no microphone >&2; exit 3 #", ENVIRONMENT).transcribe(note, "audio/ogg")
    assert "provider" not in failed.value.for_owner


async def test_a_command_speaks_what_it_reads() -> None:
    spoken = await CommandSpeaker("(printf OggS; cat) > {file}", ENVIRONMENT).speak("Grüß Gott")
    assert spoken.data == "OggSGrüß Gott".encode()
    with pytest.raises(MalformedReply, match="didn't write a file"):
        await CommandSpeaker("cat > /dev/null; true {file}", ENVIRONMENT).speak("Hi")


@pytest.mark.parametrize("starting", [True, False])
async def test_cancelling_ends_the_command_and_its_children(note: Path, tmp_path: Path, starting: bool) -> None:
    pid = tmp_path / "pid"
    hearing = CommandTranscriber(f"sleep 300 & echo $! > {pid}; wait; true {{file}}", ENVIRONMENT)

    def is_there() -> bool:
        return bool(pid.exists() and pid.read_text().strip())

    before = children()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hearing.transcribe(note, "audio/ogg"))
        if starting:  # the command runs, but this process has not heard that it was started
            while children() == before:  # noqa: ASYNC110 (nothing else tells)
                await asyncio.sleep(0)
            while not is_there():
                pass
        await until(is_there)
        task.cancel()
    await until(lambda: is_over(pid.read_text().strip()))


def children() -> str:
    """Return the processes that this thread has started."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()


def is_over(pid: str) -> bool:
    """Tell whether a process has ended, be it that nobody has asked how."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().split()[2] == "Z"
