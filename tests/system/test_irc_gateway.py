"""The gateway on IRC: a whole process, killed during traffic, between people on a real server and the model."""

import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program
from tests.platforms.irc.far_side import Person
from tests.system.test_gateway_process import running

from talaria.testing.model_server import ModelServer, Received, Say
from talaria.testing.system_servers import NGIRCD, IrcServer, ngircd
from talaria.testing.wait import until

PEOPLE = ("ann", "bob", "cleo")
KILLS = 3


@pytest.fixture
def irc() -> Iterator[IrcServer]:
    if not Path(NGIRCD).exists():
        pytest.skip("ngIRCd is not installed; `make test` installs it as root")
    with ngircd() as server:
        yield server


@pytest.fixture
async def people(irc: IrcServer) -> AsyncIterator[list[Person]]:
    async with AsyncExitStack() as stack:
        people = [Person(nick) for nick in PEOPLE]
        for person in people:
            await person.open(irc.port)
            stack.callback(person.close)
        await people[0].send("JOIN #room")
        await people[0].line_with(" 366 ")
        yield people


@pytest.fixture
def program(tmp_path: Path, server: ModelServer, irc: IrcServer) -> Program:
    settings = (
        '[gateway]\nlease_seconds = 1.0\n[access]\nallowed = ["irc:ann", "irc:bob", "irc:cleo"]\n'
        '[platforms.irc.options]\nidentity = "nick"\nchannels = "#room"\nburst = "100"\n'
    )
    return scripted_program(tmp_path, server, settings, f"IRC_SERVER=irc://127.0.0.1:{irc.port}\n")


async def replies(people: list[Person]) -> list[str]:
    return [text for person in people for text in await person.messages(person.nick, sender="talaria")]


async def test_gateway_killed_during_traffic_answers_every_message(
    program: Program, server: ModelServer, people: list[Person]
) -> None:
    def answer(received: Received) -> Say:
        slow = received.question.endswith("slowly") and len(server.received) <= len(PEOPLE)
        return Say(f"re: {received.question}", pause=60 if slow else 0)

    server.answering(answer)
    asked = []
    for number in range(KILLS):
        async with running(program) as process:
            await people[0].line_with(" JOIN :#room")
            for person in people:
                asked.append(f"{person.nick} {number}" + (" slowly" if number == 0 else ""))
                await person.send(f"PRIVMSG talaria :{asked[-1]}")
            await until(lambda: set(asked) <= {one.question for one in server.received})
            process.send_signal(signal.SIGKILL)
            await process.wait()
    async with running(program):
        await until(lambda: _answered(people, asked))
    counts = Counter(await replies(people))
    assert set(counts) == {f"re: {question}" for question in asked}
    assert sum(counts.values()) - len(counts) <= KILLS * len(PEOPLE)  # each sent but not recorded before a kill


async def _answered(people: list[Person], asked: list[str]) -> bool:
    return {f"re: {question}" for question in asked} <= set(await replies(people))


async def test_channel_question_is_answered_in_the_channel(
    program: Program, server: ModelServer, people: list[Person]
) -> None:
    server.answering(lambda received: Say(f"Long ago.\n```\ncode\n```\n{'x' * 450}"))
    async with running(program):
        await people[0].line_with(" JOIN :#room")
        await people[0].send("PRIVMSG #room :talaria: when was that?")
        await people[0].line_with(" PRIVMSG #room :xxx")
        await people[0].line_with(" PRIVMSG #room :x")
        shown = await people[0].messages("#room", sender="talaria")
    assert shown[:2] == ["Long ago.", "code"]
    assert "".join(shown[2:]) == "x" * 450
