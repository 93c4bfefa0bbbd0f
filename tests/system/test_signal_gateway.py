"""The gateway on Signal: a whole process, killed during traffic, between people behind signal-cli and the model."""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.system.test_gateway_process import running

from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.signal_daemon import SignalDaemon, signal_daemon
from talaria.testing.wait import until

ACCOUNT = "+4915100000001"
PEOPLE = tuple(f"0a1b2c3d-0000-4000-8000-00000000000{number}" for number in range(3))
KILLS = 3


@pytest.fixture
async def daemon() -> AsyncIterator[SignalDaemon]:
    async with signal_daemon(ACCOUNT, frozenset(PEOPLE)) as running_daemon:
        yield running_daemon


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, daemon: SignalDaemon) -> Program:
    allowed = ", ".join(f'"signal:{person}"' for person in PEOPLE)
    settings = f"[gateway]\nlease_seconds = 1.0\n[access]\nallowed = [{allowed}]\n"
    return scripted_program(tmp_path, server, settings, f"SIGNAL_DAEMON={daemon.address}\nSIGNAL_ACCOUNT={ACCOUNT}\n")


async def test_gateway_killed_during_traffic_answers_every_message(
    program: Program, server: ModelServer, daemon: SignalDaemon
) -> None:
    def answer(received: Received) -> Say:
        slow = received.question.endswith("slowly") and len(server.received) <= len(PEOPLE)
        return Say(f"re: {received.question}", pause=60 if slow else 0)

    server.answering(answer)
    asked: list[str] = []
    for number in range(KILLS):
        async with running(program) as process:
            await until(lambda: daemon.is_followed)
            for person in PEOPLE:
                asked.append(f"{person[-1]} {number}" + (" slowly" if number == 0 else ""))
                daemon.deliver(person, message=asked[-1])
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
        await until(lambda: not daemon.is_followed)
        for person in PEOPLE:  # while no gateway runs
            asked.append(f"{person[-1]} {number} meanwhile")
            daemon.deliver(person, message=asked[-1])
    expected = {f"re: {question}" for question in asked}
    async with running(program):
        await until(lambda: expected <= {one.text for one in daemon.sent})
    counts = Counter(one.text for one in daemon.sent)
    assert set(counts) == expected
    assert sum(counts.values()) - len(counts) <= KILLS * len(PEOPLE)  # each sent but not recorded before a kill
