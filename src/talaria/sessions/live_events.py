"""What is told of a turn to those who watch it from elsewhere: its events, joined where they can be."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from talaria.core.events import ApprovalAsked, ReasoningAdded, TextAdded, ToolAnswered, ToolCalled, TurnEvent

SO_FAR, NEWS = "so far", "news"
_LONGEST = 16_000


class QuestionClosed(Struct, frozen=True, tag="question_closed"):
    """A question is open no more: answered from anywhere, given up, or ended with its turn."""

    id: str


Seen = TurnEvent | QuestionClosed


class Telling(Struct, frozen=True):
    """A piece of what is told; ``run`` is the same as long as one process works on one turn."""

    run: str
    events: tuple[Seen, ...]


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Telling)


def encode_telling(telling: Telling) -> str:
    """Return it as the store keeps it."""
    return _encode(telling).decode()


def decode_telling(payload: str) -> Telling:
    """Return it as it was told."""
    return _decoder.decode(payload)


class Digest:
    """Gathers events: words that follow words become one event, and what is very long is cut."""

    def __init__(self) -> None:
        self._events: list[Seen] = []
        self._words: list[str] = []
        self._kind: type[TextAdded | ReasoningAdded] = TextAdded

    def add(self, event: Seen) -> None:
        """Take one more."""
        if isinstance(event, TextAdded | ReasoningAdded):
            if type(event) is not self._kind:
                self._join()
                self._kind = type(event)
            self._words.append(event.text)
        else:
            self._join()
            self._events.append(_bounded(event))

    def gathered(self) -> Sequence[Seen]:
        """Return what there is."""
        self._join()
        return self._events

    def _join(self) -> None:
        if self._words:
            words, last = "".join(self._words), self._events[-1] if self._events else None
            if type(last) is self._kind:
                self._events[-1] = self._kind(last.text + words)
            else:
                self._events.append(self._kind(words))
            self._words.clear()


def _bounded(event: Seen) -> Seen:
    if isinstance(event, ToolAnswered | ApprovalAsked) and len(event.diff) > _LONGEST:
        event = structs.replace(event, diff=f"{event.diff[:_LONGEST]} …")
    if isinstance(event, ToolAnswered) and len(event.result.text) > _LONGEST:
        return structs.replace(event, result=structs.replace(event.result, text=f"{event.result.text[:_LONGEST]} …"))
    if isinstance(event, ToolCalled) and len(event.call.arguments) > _LONGEST:
        return structs.replace(
            event, call=structs.replace(event.call, arguments=f"{event.call.arguments[:_LONGEST]} …")
        )
    return event
