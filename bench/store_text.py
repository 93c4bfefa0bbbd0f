"""Generator of realistic messages: Zipf-distributed words, some Chinese, reproducible by seed."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Message, Role, Text

_ONSETS = [*"bcdfghjklmnprstvwz", "bl", "br", "ch", "cl", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "sl", "st", "tr"]
_CORES = [*"aeiou", "ai", "ea", "ee", "io", "ou"]
_ENDS = ["", "n", "r", "s", "t", "l", "nd", "st", "ck", "m"]
_CHINESE = (
    "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天"
)
_ROLES: tuple[Role, ...] = ("user", "assistant", "tool", "assistant")
LONG_SESSION = 1_000
_VOCABULARY = 50_000
_CHINESE_SHARE = 0.03
_START = datetime(2026, 1, 1, tzinfo=UTC)


class Example(Struct, frozen=True):
    """A message and the number of its session."""

    session: int
    message: Message


class MessageGenerator:
    """Generates messages of 300 to 500 bytes, interleaved over a number of ``sessions``."""

    def __init__(self, *, sessions: int, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._sessions = sessions
        self.words = _vocabulary(random.Random(seed))
        self._weights = list(accumulate(1 / (rank + 2) for rank in range(_VOCABULARY)))

    def messages(self, count: int) -> Iterator[Example]:
        """Yield messages in order of arrival; session 0 has 1,000 of them, spread evenly."""
        stride = count // LONG_SESSION
        for number in range(count):
            session = self._random.randrange(1, self._sessions) if number % stride else 0
            at = _START + timedelta(seconds=7 * number)
            yield Example(session, Message(role=_ROLES[number % 4], parts=(Text(self.text()),), at=at))

    def text(self) -> str:
        """Return the text of one message."""
        if self._random.random() < _CHINESE_SHARE:
            return "、".join(self._clause() for _ in range(self._random.randint(12, 17))) + "。"
        words = self._random.choices(self.words, cum_weights=self._weights, k=self._random.randint(38, 64))
        for index in range(0, len(words), 11):
            words[index] = words[index].capitalize()
            words[index - 1] += "."
        return " ".join(words)

    def _clause(self) -> str:
        return "".join(self._random.choices(_CHINESE, k=self._random.randint(5, 11)))


def count_sessions(examples: Sequence[Example]) -> int:
    """Return the number of sessions that some examples use."""
    return 1 + max(one.session for one in examples)


def make_session_id(number: int) -> SessionId:
    """Return the id of an example session."""
    return SessionId(f"example-{number:08}")


def chinese_words(count: int) -> list[str]:
    """Return words of two characters, which occur in the Chinese messages."""
    return [_CHINESE[index : index + 2] for index in range(count)]


def _vocabulary(rng: random.Random) -> list[str]:
    """Return distinct words, the most common and shortest first."""
    words: dict[str, None] = {}
    while len(words) < _VOCABULARY:
        syllables = 1 if len(words) < 500 else 2 if len(words) < 8_000 else 3
        word = "".join(
            rng.choice(_ONSETS) + rng.choice(_CORES) + rng.choice(_ENDS if index == syllables - 1 else _ENDS[:4])
            for index in range(syllables)
        )
        words[word] = None
    return list(words)
