"""Twenty people in private chats and groups, the secrets that each of them plants there, and who may see them."""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from talaria.core.addresses import Address
from talaria.testing.model_server import Ask, Received, Say

PEOPLE = tuple(f"p{number:02}" for number in range(20))
OWNER = PEOPLE[0]
TOPIC = "otter"  # is part of every planted text, so that a search finds it

_SECRET = re.compile(r"sec[0-9a-f]{12}")
_ORDERS = re.compile(r" do (\[.*\]) now")
_WHERE = re.compile(r"\[(\w+)@(\w+)\]")


@dataclass(frozen=True)
class SampleChat:
    """A chat; in an ``apart`` group each person has their own session, in a ``shared`` one there is one for all."""

    name: str
    kind: Literal["private", "apart", "shared"]
    address: Address
    people: tuple[str, ...]

    @property
    def chat_key(self) -> str:
        return f"{self.address.platform}/{self.address.chat_id}"


CHATS = (
    *(SampleChat(f"home{one}", "private", Address("loopback", f"dm-{one}"), (one,)) for one in PEOPLE),
    SampleChat("garden", "apart", Address("loopback", "garden", "group"), PEOPLE),
    SampleChat("left", "shared", Address("loopback", "forum", "thread", thread_id="t1"), PEOPLE[:10]),
    SampleChat("right", "shared", Address("loopback", "forum", "thread", thread_id="t2"), PEOPLE[10:]),
    SampleChat("club", "shared", Address("village", "club", "group"), PEOPLE),
)
BY_NAME = {chat.name: chat for chat in CHATS}


@dataclass(frozen=True)
class PlantedSecret:
    """A secret: which person planted it in which chat, and how."""

    person: str
    chat: SampleChat
    kind: Literal["said", "noted", "about", "title", "file"]
    word: str

    @property
    def is_of_group(self) -> bool:
        """Whether the agent noted it for everyone in a group."""
        return self.kind == "noted" and self.chat.kind == "apart"

    def may_be_known_to(self, person: str, chat: SampleChat) -> bool:
        """Return whether a person may see it in a chat; the notes of a group are for all its people, in every chat."""
        own = self.chat.kind != "shared" and (self.person == person or self.is_of_group)
        match chat.kind:
            case "private":
                return own
            case "apart":
                return own and self.chat.chat_key == chat.chat_key
            case "shared":
                return self.chat.chat_key == chat.chat_key


class PlantedSecrets:
    """Everything that was planted."""

    def __init__(self) -> None:
        self.secrets: dict[str, PlantedSecret] = {}

    def plant(self, person: str, chat: SampleChat, kind: Literal["said", "noted", "about", "title", "file"]) -> str:
        """Return a new secret."""
        word = f"sec{secrets.token_hex(6)}"
        self.secrets[word] = PlantedSecret(person, chat, kind, word)
        return word

    def of(self, person: str, chat: SampleChat) -> dict[str, str]:
        """Return the secrets that a person planted in a chat, by kind."""
        return {one.kind: one.word for one in self.secrets.values() if (one.person, one.chat) == (person, chat)}

    def foreign(self, text: str, person: str, chat: SampleChat) -> list[PlantedSecret]:
        """Return the secrets in a text that a person must not see in a chat."""
        found = [self.secrets[word] for word in find_secrets(text) if word in self.secrets]
        return [one for one in found if not one.may_be_known_to(person, chat)]

    def foreign_to_all(self, text: str, chats: Iterable[SampleChat]) -> list[PlantedSecret]:
        """Return the secrets in a text that no reader of these chats may see."""
        readers = [(person, chat) for chat in chats for person in chat.people]
        found = [self.secrets[word] for word in find_secrets(text) if word in self.secrets]
        return [one for one in found if not any(one.may_be_known_to(*reader) for reader in readers)]


def find_secrets(text: str) -> list[str]:
    """Return the secrets in a text."""
    return sorted(set(_SECRET.findall(text)))


def order(person: str, chat: SampleChat, nonce: str, *calls: Ask, text: str = "") -> str:
    """Return a message that makes the model call these tools and then repeat the secrets it knows."""
    listed = [(call.name, call.arguments) for call in calls]
    return f"[{person}@{chat.name}] {text} nonce {nonce} do {msgspec.json.encode(listed).decode()} now"


def origin_of(received: Received) -> tuple[str, SampleChat] | None:
    """Return the person and the chat whose message a request answers."""
    found = _WHERE.search(received.question)  # the first one: a request for a title quotes all later messages
    return (found[1], BY_NAME[found[2]]) if found else None


def obey(received: Received) -> Say:
    """Call the tools that the last message requests, then repeat every secret in the request."""
    request = received.json
    last = request["messages"][-1]["role"]
    listed = _ORDERS.findall(received.question)
    if last == "user" and "tools" in request and listed:
        requested: list[tuple[str, Any]] = msgspec.json.decode(listed[-1])
        if requested:
            return Say(calls=[Ask(name, arguments) for name, arguments in requested], chunks=1)
    nonce = re.findall(r"nonce (\w+)", received.question)
    return Say(f"done {nonce[-1] if nonce else ''}: {' '.join(find_secrets(received.body.decode()))}", chunks=1)
