"""The end of a turn under random load: no message that arrives around it is lost or answered twice.

`tests/runtime/test_end_of_turn.py` tests each point of it; this test finds the cases that are not listed there.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import pytest
from tests.gateway.in_process_gateway import run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.contracts.turns import TurnResult
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Received, Say

CHATS = 8
SPREAD = 0.02
ANSWERING = 0.03
NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True)


class Talk:
    """People who write their next message about when the turn for the last one ends; implements `Follower`."""

    resumable: ClassVar = True
    has_follow_up: ClassVar = False

    def __init__(self, network: LoopbackNetwork, each: int, chance: random.Random) -> None:
        self.questions: list[str] = []
        self.network = network
        self.each = each
        self._chance = chance
        self._took = ANSWERING
        self._loop = asyncio.get_running_loop()
        self._called: dict[str, float] = {}
        self._next: dict[str, int] = {}  # messages to be written within the transaction that ends a turn
        self._chats = [f"c{number}" for number in range(CHATS)]

    @property
    def expected(self) -> list[str]:
        return [f"{chat} m{number}" for chat in self._chats for number in range(self.each)]

    @property
    def last(self) -> set[str]:
        """The last answer of each chat."""
        return {f"re: {chat} m{self.each - 1}" for chat in self._chats}

    def begin(self) -> None:
        for chat in self._chats:
            self._say(chat, 0)

    def answer(self, received: Received) -> Say:
        """Answer in two pieces; the next message is written around the end of the turn, every other one right at it."""
        question = received.question
        self.questions.append(question)
        chat, number = question.split(" m")
        self._called[chat] = perf_counter()
        following = int(number) + 1
        if following % 2 and following < self.each:
            self._next[chat] = following
        elif following < self.each:
            spacing = max(self._took + self._chance.uniform(-SPREAD, SPREAD), 0)
            self._loop.call_later(spacing, self._say, chat, following)
        return Say(f"re: {question}", chunks=2, pause=ANSWERING)

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> None:
        """Learn how long a turn takes after its model call, and write the message that is due right now."""
        assert ending.route is not None
        chat = ending.route.address.chat_id
        self._took += 0.1 * (perf_counter() - self._called[chat] - self._took)
        following = self._next.pop(chat, None)
        if following is not None:
            self._loop.call_soon_threadsafe(self._say, chat, following)

    async def follow_up(self) -> bool:
        return False

    def _say(self, chat: str, number: int) -> None:
        self.network.say(chat, f"{chat} m{number}", sender=chat)


@pytest.fixture
def each(request: pytest.FixtureRequest) -> int:
    """How many messages are written in a chat."""
    return 500 if request.config.getoption("--long") else 25


@pytest.mark.parametrize("busy", ["queue", "steer", "interrupt"])
async def test_message_around_the_end_of_a_turn_is_neither_lost_nor_answered_twice(
    tmp_path: Path, each: int, busy: str
) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        talk = Talk(network, each, random.Random(5))
        await run_until_answered(tmp_path, server, talk, busy)
        assert Counter(talk.questions) == Counter(talk.expected)
        if busy == "queue":
            shown = [text for chat in range(CHATS) for text in network.shown(f"c{chat}")]
            assert Counter(shown) == Counter(f"re: {question}" for question in talk.expected)


async def run_until_answered(home: Path, server: ModelServer, talk: Talk, busy: str) -> None:
    """Run the gateway until the last message of each chat is answered."""
    server.answering(talk.answer)
    settings = f'[gateway]\nbusy = "{busy}"\n'
    async with run_gateway(home, talk.network.platform(), server.url, settings=settings, follower=talk):
        talk.begin()
        await talk.network.until(lambda: talk.last <= {post.text for post in talk.network.posts}, 50.0 + talk.each)
