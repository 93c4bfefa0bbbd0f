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
class Spot:
    """A chat; in an ``apart`` group each person has their own session, in a ``shared`` one there is one for all."""

    name: str
    kind: Literal["private", "apart", "shared"]
    address: Address
    people: tuple[str, ...]

    @property
    def chat(self) -> str:
        return f"{self.address.platform}/{self.address.chat_id}"


SPOTS = (
    *(Spot(f"home{one}", "private", Address("loopback", f"dm-{one}"), (one,)) for one in PEOPLE),
    Spot("garden", "apart", Address("loopback", "garden", "group"), PEOPLE),
    Spot("left", "shared", Address("loopback", "forum", "thread", thread_id="t1"), PEOPLE[:10]),
    Spot("right", "shared", Address("loopback", "forum", "thread", thread_id="t2"), PEOPLE[10:]),
    Spot("club", "shared", Address("village", "club", "group"), PEOPLE),
)
BY_NAME = {spot.name: spot for spot in SPOTS}


@dataclass(frozen=True)
class Plant:
    """A secret: which person planted it in which chat, and how."""

    person: str
    spot: Spot
    kind: Literal["said", "noted", "about", "title", "file"]
    word: str

    @property
    def is_of_group(self) -> bool:
        """Whether the agent noted it for everyone in a group."""
        return self.kind == "noted" and self.spot.kind == "apart"

    def may_be_known_to(self, person: str, spot: Spot) -> bool:
        """Return whether a person may see it in a chat; the notes of a group are for all its people, in every chat."""
        own = self.spot.kind != "shared" and (self.person == person or self.is_of_group)
        match spot.kind:
            case "private":
                return own
            case "apart":
                return own and self.spot.chat == spot.chat
            case "shared":
                return self.spot.chat == spot.chat


class Garden:
    """Everything that was planted."""

    def __init__(self) -> None:
        self.plants: dict[str, Plant] = {}

    def plant(self, person: str, spot: Spot, kind: Literal["said", "noted", "about", "title", "file"]) -> str:
        """Return a new secret."""
        word = f"sec{secrets.token_hex(6)}"
        self.plants[word] = Plant(person, spot, kind, word)
        return word

    def of(self, person: str, spot: Spot) -> dict[str, str]:
        """Return the secrets that a person planted in a chat, by kind."""
        return {one.kind: one.word for one in self.plants.values() if (one.person, one.spot) == (person, spot)}

    def foreign(self, text: str, person: str, spot: Spot) -> list[Plant]:
        """Return the secrets in a text that a person must not see in a chat."""
        found = [self.plants[word] for word in find_secrets(text) if word in self.plants]
        return [one for one in found if not one.may_be_known_to(person, spot)]

    def foreign_to_all(self, text: str, spots: Iterable[Spot]) -> list[Plant]:
        """Return the secrets in a text that no reader of these chats may see."""
        readers = [(person, spot) for spot in spots for person in spot.people]
        found = [self.plants[word] for word in find_secrets(text) if word in self.plants]
        return [one for one in found if not any(one.may_be_known_to(*reader) for reader in readers)]


def find_secrets(text: str) -> list[str]:
    """Return the secrets in a text."""
    return sorted(set(_SECRET.findall(text)))


def order(person: str, spot: Spot, nonce: str, *calls: Ask, text: str = "") -> str:
    """Return a message that makes the model call these tools and then repeat the secrets it knows."""
    listed = [(call.name, call.arguments) for call in calls]
    return f"[{person}@{spot.name}] {text} nonce {nonce} do {msgspec.json.encode(listed).decode()} now"


def origin_of(received: Received) -> tuple[str, Spot] | None:
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
