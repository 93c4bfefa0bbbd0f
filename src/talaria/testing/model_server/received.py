"""Requests received by the scripted model server."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

ProtocolName = Literal["chat", "responses", "anthropic"]


@dataclass(frozen=True)
class Received:
    """A received model call; ``headers`` are case-insensitive."""

    protocol: ProtocolName
    path: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)

    @property
    def is_title_request(self) -> bool:
        """Return whether Talaria asks for a title of a session, which it does in parallel with the next turn."""
        return b"title of at most six words" in self.body

    @cached_property
    def question(self) -> str:
        """The text of the last message of a person; empty if there is none."""
        body = self.json
        turns = body.get("messages", body.get("input", ()))
        if isinstance(turns, str):
            return turns
        user_messages = [_content_text(turn.get("content")) for turn in turns if turn.get("role") == "user"]
        return next((texts for texts in reversed(user_messages) if texts), "")


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a Chat Completions stream."""

    include_usage: bool = False


class Asked(msgspec.Struct, frozen=True):
    """The part of a request that decides the form of its answer."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include: list[str] | None = None

    @property
    def wants_usage(self) -> bool:
        """Return whether a Chat Completions stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request with the id under which it is answered."""

    id: str
    asked: Asked
    prompt_bytes: int


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if part.get("type") in {"text", "input_text"})
