"""The log of a profile: session and turn of each line, and no secrets in either format."""

import asyncio
import logging
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.agent.agent_fixture import Echo, Word
from tests.commands.command_fixture import open_chat_client

from talaria.app.log_setup import LOG_NAME, LogFormat, LogLine, close_log, open_log
from talaria.contracts.tool import Call
from talaria.core.session_context import SessionContext, bound
from talaria.settings.profiles import Profile, Profiles
from talaria.testing.model_server import Ask, ModelServer, Say

log = logging.getLogger("talaria.tests")


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    profile = Profiles(tmp_path).active()
    profile.prepare()
    return profile


@contextmanager
def logging_to(
    profile: Profile, style: LogFormat, mask: Callable[[str], str] = str
) -> Iterator[Callable[[], list[str]]]:
    handler = open_log(profile, "info", mask, style)
    path = profile.logs_folder / LOG_NAME
    try:
        yield lambda: path.read_text().splitlines()
    finally:
        close_log(handler)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_log_line_names_the_session_and_turn_of_its_context(profile: Profile) -> None:
    with logging_to(profile, "text") as lines:
        log.info("outside")
        with bound(SessionContext(session_id="s1", turn_id="t1")):
            log.info("within")
        with bound(SessionContext(session_id="s2")):
            log.info("behind a reply")
        outside, within, behind = lines()
    assert outside.endswith(" INFO talaria.tests: outside")
    assert within.endswith(" INFO talaria.tests [s1/t1]: within")
    assert behind.endswith(" INFO talaria.tests [s2]: behind a reply")


def test_json_log_line_has_the_traceback_and_no_secrets(profile: Profile) -> None:
    def mask(text: str) -> str:
        return text.replace('pass"word', "***")

    with logging_to(profile, "json", mask) as lines, bound(SessionContext(session_id="s", turn_id="t", platform="x")):
        try:
            int('pass"word')
        except ValueError:
            log.exception("it is %s\nhere", 'pass"word')
        (line,) = lines()
    read = msgspec.json.decode(line, type=LogLine)
    assert (read.level, read.logger, read.message) == ("error", "talaria.tests", "it is ***\nhere")
    assert (read.session, read.turn, read.platform) == ("s", "t", "x")
    assert "ValueError" in read.error
    assert "***" in read.error
    assert 'pass\\"word' not in line
    assert datetime.now(UTC) - read.at < timedelta(minutes=1)


async def test_log_lines_of_interleaved_turns_and_threads_name_their_own_turn(profile: Profile) -> None:
    async def turn(number: int) -> None:
        with bound(SessionContext(session_id=f"s{number}", turn_id=f"t{number}")):
            for _ in range(3):
                await asyncio.sleep(0)
                log.info("%d", number)
                await asyncio.to_thread(log.info, "%d", number)

    with logging_to(profile, "json") as lines:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(turn(number))
        read = [msgspec.json.decode(line, type=LogLine) for line in lines()]
    assert len(read) == 1200
    assert all((line.session, line.turn) == (f"s{line.message}", f"t{line.message}") for line in read)


async def test_log_line_of_a_turn_names_its_session(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, '[log]\nformat = "json"\n', tools=(Echo(does=_break),)) as client,
    ):
        server.script(Say(calls=[Ask("echo", {})]))
        await client.say("hi")
        (line,) = client.application.identity.log_file.read_text().splitlines()
        read = msgspec.json.decode(line, type=LogLine)
        assert (read.message, read.session) == ("tool echo failed", client.active_session.session_id)
        assert read.turn
        assert "ValueError" in read.error


def _break(arguments: Word, call: Call) -> str:
    raise ValueError(arguments.word)


@pytest.mark.parametrize("style", ["text", "json"])
def test_lost_log_lines_are_counted_and_print_no_error(
    profile: Profile, style: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with logging_to(profile, style) as lines:
        log.info("one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (len("\n".join(lines())) + 5, before[1]))
        try:
            log.info("two")
            log.info("three")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.info("four")
        one, lost, four = lines()
    assert ("one" in one, "2 earlier lines couldn't be written" in lost, "four" in four) == (True,) * 3
    assert capsys.readouterr().err == ""
