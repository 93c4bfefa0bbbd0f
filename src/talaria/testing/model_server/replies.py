"""Scripted replies, independent of the protocol."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise

import msgspec

from talaria.contracts.provider import StopReason
from talaria.core.ids import new_id

_WORDS = re.compile(r"\s*\S+(?:\s+$)?|\s+")
_CHARACTERS_PER_TOKEN = 4
_ARGUMENT_PIECE = 8


@dataclass(frozen=True, slots=True)
class Tokens:
    """The usage of a call; ``input`` counts only tokens neither read from nor written to a cache."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All that went in, cached or not."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool call; string ``arguments`` are sent unchanged, including broken JSON."""

    name: str
    arguments: Mapping[str, object] | str
    id: str | None = None

    @property
    def written(self) -> str:
        """The arguments as the model wrote them."""
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    def id_like(self, prefix: str) -> str:
        """Return the id, or a new one in the vendor's format."""
        return self.id or f"{prefix}{new_id()}"


@dataclass(frozen=True, slots=True)
class Say:
    """One reply of the model: reasoning, then text, then tool calls.

    Streamed, each of them comes in ``chunks`` pieces (by default words and scraps of JSON), with ``pause`` seconds
    before each piece but the first. With ``hold``, the pieces after so many wait for an event. ``usage`` is estimated
    from lengths by default.
    """

    text: str = ""
    _: KW_ONLY
    reasoning: str = ""
    calls: Sequence[Ask] = ()
    usage: Tokens | None = None
    stop: StopReason | None = None
    chunks: int | None = None
    pause: float = 0.0
    hold: tuple[int, asyncio.Event] | None = None

    @property
    def ending(self) -> StopReason:
        """Why the reply ends: as given, or as its calls suggest."""
        return self.stop or ("tool_calls" if self.calls else "end")

    def pieces(self, text: str) -> list[str]:
        """Cut some text of this reply the way it is streamed."""
        return _WORDS.findall(text) if self.chunks is None else cut_evenly(text, self.chunks)

    def argument_pieces(self, call: Ask) -> list[str]:
        """Cut the arguments of a call the way they are streamed: with no regard to where a value ends."""
        written = call.written
        return cut_evenly(written, self.chunks or -(-len(written) // _ARGUMENT_PIECE))

    def tokens(self, prompt_bytes: int) -> Tokens:
        """Return what this reply used, with an estimate for a request of so many bytes."""
        if self.usage is not None:
            return self.usage
        text_tokens = len(self.text) + sum(len(call.name) + len(call.written) for call in self.calls)
        reasoning_tokens = -(-len(self.reasoning) // _CHARACTERS_PER_TOKEN)
        output = max(1, reasoning_tokens - (-text_tokens // _CHARACTERS_PER_TOKEN))
        return Tokens(input=max(1, prompt_bytes // _CHARACTERS_PER_TOKEN), output=output, reasoning=reasoning_tokens)


def cut_evenly(text: str, pieces: int) -> list[str]:
    """Cut ``text`` into so many pieces of nearly equal length, fewer if it has fewer characters."""
    count = min(pieces, len(text))
    edges = [len(text) * position // count for position in range(count + 1)] if count else []
    return [text[start:end] for start, end in pairwise(edges)]
