"""Transcription and speech over the audio routes and by commands, and their errors."""

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


async def test_recording_is_transcribed(server: ModelServer, http: HttpPool, note: Path) -> None:
    server.audio.transcript = "  Grüß Gott. \n"
    assert await AudioTranscriber(at(server), http, "hears-well").transcribe(note, "audio/ogg") == "Grüß Gott."
    assert server.audio.heard == [ReceivedRecording("hears-well", "a _strange_ näme.ogg", "audio/ogg", SOUND)]


async def test_text_is_spoken_as_a_recording(server: ModelServer, http: HttpPool) -> None:
    spoken = await AudioSpeaker(at(server), http, "speaks-well", "coral").speak("Good morning.")
    assert (spoken.data, spoken.media_type) == (OGG, "audio/ogg")
    assert server.audio.spoken == [SpeechRequest("speaks-well", "Good morning.", "coral", "opus")]


async def test_openai_sdk_uses_the_same_audio_routes(server: ModelServer, note: Path) -> None:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        transcript = await client.audio.transcriptions.create(model="m", file=("note.ogg", SOUND, "audio/ogg"))
        spoken = await client.audio.speech.create(model="m", voice="alloy", input="Hi", response_format="opus")
    assert transcript.text == server.audio.transcript
    assert spoken.content == OGG


@pytest.mark.parametrize(("status", "kind"), [(401, BadKey), (503, ProviderOverloaded)])
async def test_refused_audio_request_raises_the_matching_provider_error(
    server: ModelServer, http: HttpPool, note: Path, status: int, kind: type[ProviderError]
) -> None:
    server.audio.faults.extend([Fail(status), Fail(status)])
    with pytest.raises(kind):
        await AudioTranscriber(at(server), http, "m").transcribe(note, "audio/ogg")
    with pytest.raises(kind):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")


async def test_response_that_is_not_ogg_or_too_long_is_an_error(server: ModelServer, http: HttpPool) -> None:
    server.audio.speech = b"<html>"
    with pytest.raises(MalformedReply, match="Ogg"):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")
    server.audio.speech = b"OggS" + bytes(26_000_000)
    with pytest.raises(ReplyTooLong, match="more than"):
        await AudioSpeaker(at(server), http, "m", "alloy").speak("Hi")


async def test_transcription_times_out_if_the_server_never_answers(
    server: ModelServer, http: HttpPool, note: Path
) -> None:
    server.audio.open.clear()
    with pytest.raises(ProviderUnreachable):
        await AudioTranscriber(at(server, seconds=0.2), http, "m").transcribe(note, "audio/ogg")


async def test_missing_recording_is_reported_by_name(server: ModelServer, http: HttpPool, tmp_path: Path) -> None:
    with pytest.raises(ProviderUnreachable, match=r"can't read gone\.ogg"):
        await AudioTranscriber(at(server), http, "m").transcribe(tmp_path / "gone.ogg", "audio/ogg")


@pytest.mark.parametrize("command", ["wc -c < {file}", "cat {file} | wc -c"])
async def test_transcription_command_gets_the_recording(note: Path, command: str) -> None:
    transcript = await CommandTranscriber(command, ENVIRONMENT).transcribe(note, "audio/ogg")
    assert transcript == str(len(SOUND))


async def test_command_without_a_placeholder_gets_the_file_as_last_argument(note: Path) -> None:
    assert await CommandTranscriber("basename", ENVIRONMENT).transcribe(note, "audio/ogg") == note.name


async def test_failed_command_reports_its_exit_code_and_error_output(note: Path) -> None:
    with pytest.raises(VoiceCommandFailed, match="ended with exit code 3: no microphone") as failed:
        await CommandTranscriber("echo no microphone >&2; exit 3 #", ENVIRONMENT).transcribe(note, "audio/ogg")
    assert "provider" not in failed.value.for_owner


async def test_speech_command_gets_the_text_and_writes_the_recording() -> None:
    spoken = await CommandSpeaker("(printf OggS; cat) > {file}", ENVIRONMENT).speak("Grüß Gott")
    assert spoken.data == "OggSGrüß Gott".encode()
    with pytest.raises(MalformedReply, match="didn't write a file"):
        await CommandSpeaker("cat > /dev/null; true {file}", ENVIRONMENT).speak("Hi")


@pytest.mark.parametrize("starting", [True, False])
async def test_cancelling_ends_the_command_and_its_children(note: Path, tmp_path: Path, starting: bool) -> None:
    pid = tmp_path / "pid"
    transcriber = CommandTranscriber(f"sleep 300 & echo $! > {pid}; wait; true {{file}}", ENVIRONMENT)

    def is_pid_written() -> bool:
        return bool(pid.exists() and pid.read_text().strip())

    before = children()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(transcriber.transcribe(note, "audio/ogg"))
        if starting:  # the command runs, but this process does not know yet that it was started
            while children() == before:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0)
            while not is_pid_written():
                pass
        await until(is_pid_written)
        task.cancel()
    await until(lambda: is_over(pid.read_text().strip()))


def children() -> str:
    """Return the processes that this thread has started."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()


def is_over(pid: str) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it."""
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().split()[2] == "Z"
