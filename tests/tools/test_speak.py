"""Speak tool, with espeak-ng as the speaker and pocketsphinx as the transcriber."""

import os
import shutil
import sys
import wave
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.provider import Recording
from talaria.contracts.tool import ProposedAction
from talaria.core.errors import ToolFailed
from talaria.providers.media import CommandSpeaker, CommandTranscriber
from talaria.tools.media import Speak, SpeakArguments

ENVIRONMENT = {"PATH": os.defpath}
ESPEAK = "espeak-ng -s 120 --stdin -w {file}"
needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="espeak-ng isn't installed: make system")
needs_sphinx = pytest.mark.skipif(find_spec("pocketsphinx") is None, reason="pocketsphinx isn't installed: make test")
UNDERSTAND = """
import sys, wave
from pocketsphinx import Decoder, get_model_path
with wave.open(sys.argv[1]) as sound:
    decoder = Decoder(samprate=sound.getframerate(), nfft=1024, loglevel="FATAL")
    decoder.start_utt()
    decoder.process_raw(sound.readframes(sound.getnframes()), full_utt=True)
    decoder.end_utt()
print(decoder.hyp().hypstr)
"""


@pytest.mark.slow
@needs_espeak
async def test_espeak_recording_is_saved(tmp_path: Path) -> None:
    tool = Speak(lambda: CommandSpeaker(ESPEAK, ENVIRONMENT), None, 60)
    arguments = SpeakArguments("Good morning")
    assert tool.proposed_action(arguments) == ProposedAction("write", "speech")
    for name in ("speech.wav", "speech-2.wav"):
        assert (await tool.run(arguments, call_from(tmp_path))).text == f"Saved {tmp_path}/{name}."
    with wave.open(str(tmp_path / "speech.wav")) as sound:
        assert sound.getnframes() > sound.getframerate() / 4


@pytest.mark.slow
@needs_espeak
@needs_sphinx
async def test_pocketsphinx_transcribes_speech_of_espeak(tmp_path: Path) -> None:
    program = tmp_path / "understand.py"
    program.write_text(UNDERSTAND)
    spoken = await CommandSpeaker(ESPEAK, ENVIRONMENT).speak("go forward ten meters")
    file = tmp_path / "note.wav"
    file.write_bytes(spoken.data)
    transcript = await CommandTranscriber(f"{sys.executable} {program} {{file}}", ENVIRONMENT).transcribe(
        file, "audio/wav"
    )
    assert {"forward", "ten", "meters"} & set(transcript.split())


class _WavSpeaker:
    async def speak(self, text: str) -> Recording:
        return Recording(text.encode(), "audio/wav")


async def test_recording_is_saved_with_the_suffix_of_its_format(tmp_path: Path) -> None:
    tool, call = Speak(_WavSpeaker, None, 60), call_from(tmp_path)
    assert tool.proposed_action(SpeakArguments("one")) == ProposedAction("write", "speech")
    (tmp_path / "note.wav").write_text("older")
    for path, saved in (
        ("", "speech.wav"),
        ("note.ogg", "note-2.wav"),
        ("note.v2", "note.v2"),
        ("note.wav", "note.wav"),
    ):
        assert (await tool.run(SpeakArguments("two", path), call)).text == f"Saved {tmp_path}/{saved}."
        assert (tmp_path / saved).read_text() == "two"


@pytest.mark.slow
async def test_failed_recording_is_reported(tmp_path: Path) -> None:
    for command, seconds, reason in (("exit 3 #", 60, "exit code 3"), ("sleep 60 #", 0.2, r"within 0\.2 s")):
        tool = Speak(partial(CommandSpeaker, command, ENVIRONMENT), None, seconds)
        with pytest.raises(ToolFailed, match=reason):
            await tool.run(SpeakArguments("x"), call_from(tmp_path))
    with pytest.raises(ToolFailed, match=r"voice\.speaker"):
        await Speak(lambda: None, None, 1).run(SpeakArguments("x"), call_from(tmp_path))
    assert not (tmp_path / "speech.wav").exists()
