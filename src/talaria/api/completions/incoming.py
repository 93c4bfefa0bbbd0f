"""What a client of chat completions says, in our words."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from talaria.api.completions.wire import CreateCompletion, ImagePart, RefusalPart, TextPart, WireMessage
from talaria.api.problems import Problem, unsupported

_TOOLS = "The agent has tools of its own and does not call those of a client: leave `{name}` away."
_INSTRUCTING = ("system", "developer")


class Said(Struct, frozen=True):
    """A request taken apart: what the agent is told, what was said before, and what is said now."""

    instructions: str
    history: tuple[WireMessage, ...]
    last: WireMessage


def check(body: CreateCompletion) -> None:
    """Raise a `Problem` for what cannot be honoured, rather than to do something else."""
    if body.tools:
        raise unsupported("tools", _TOOLS.format(name="tools"))
    if body.functions:
        raise unsupported("functions", _TOOLS.format(name="functions"))
    if body.n not in (None, 1):
        raise unsupported("n", "There is one answer to a request: `n` can only be 1.")
    if body.response_format is not None and body.response_format.type != "text":
        raise unsupported("response_format", "The agent answers in words: `response_format` can only be `text`.")
    if body.stop:
        raise unsupported("stop", "An answer cannot be cut at a word: leave `stop` away.")
    if body.logprobs:
        raise unsupported("logprobs", "Probabilities are not told: leave `logprobs` away.")
    if body.audio is not None or (body.modalities or ["text"]) != ["text"]:
        raise unsupported("modalities", "The agent answers in words: `modalities` can only be `text`.")


def taken_apart(messages: Sequence[WireMessage]) -> Said:
    """Return what is said; raises a `Problem` where nobody says anything at the end."""
    told = [words_of(message) for message in messages if message.role in _INSTRUCTING]
    said = [message for message in messages if message.role not in _INSTRUCTING]
    if not said or said[-1].role != "user":
        raise Problem("The last message has to be the user's.", param="messages", code="invalid_value")
    if not words_of(said[-1]).strip() and not pictures_of(said[-1]):
        raise Problem("The last message is empty.", param="messages", code="invalid_value")
    return Said("\n\n".join(filter(None, told)), tuple(said[:-1]), said[-1])


def words_of(message: WireMessage) -> str:
    """Return the words of a message, without characters that a store may not take."""
    if message.content is None or isinstance(message.content, str):
        return (message.content or "").replace("\0", "")
    return "\n".join(_words(part) for part in message.content if not isinstance(part, ImagePart)).replace("\0", "")


def pictures_of(message: WireMessage) -> list[str]:
    """Return the addresses of its pictures."""
    parts = message.content if isinstance(message.content, list) else []
    return [part.image_url.url for part in parts if isinstance(part, ImagePart)]


def fingerprint(caller: str, instructions: str, messages: Sequence[WireMessage], reply: str | None = None) -> str:
    """Return what stands for a history as one client tells it; ``reply`` is what it was answered in the end.

    Only words count: what is between them some clients change.
    """
    told = [(message.role, words_of(message).split(), pictures_of(message)) for message in messages]
    if reply is not None:
        told.append(("assistant", reply.split(), []))
    return hashlib.sha256(msgspec.json.encode((caller, instructions, told))).hexdigest()


def _words(part: TextPart | RefusalPart) -> str:
    return part.text if isinstance(part, TextPart) else part.refusal
