"""Addresses of the web app: one chat per person, in which each conversation is a thread."""

from datetime import datetime

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Binding
from talaria.contracts.values import SessionValue
from talaria.core.addresses import WEB, Address
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import File, Image
from talaria.runtime.live.remote import SessionLocation
from talaria.sessions.chat_directory import HomeChat, read_home, write_home
from talaria.sessions.keys import build_session_key

OWNER_CHAT = "owner"
_PEOPLE = "people/"  # a chat of another person; so that nobody's name is that of the owner's chat


class WebNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivered message that is no part of the transcript; ``after`` is the last message before it."""

    at: datetime
    after: int
    text: str = ""
    files: tuple[File | Image, ...] = ()


WEB_NOTICE = SessionValue("web_notice", WebNotice)  # by the time and the key of the message in the outbox
UNREAD = SessionValue("web_unread", int)  # how many messages were delivered while nobody looked


def web_address(person: str = "", thread_id: str = "") -> Address:
    """Return the address of a person, empty for the owner of the agent, or of one of their conversations."""
    return Address(WEB, f"{_PEOPLE}{person}" if person else OWNER_CHAT, thread_id=thread_id)


def new_thread(person: str) -> Address:
    """Return an address for a new conversation."""
    return web_address(person, new_id())


def person_of(address: Address) -> str:
    """Return the person of an address, empty for the owner of the agent."""
    return address.chat_id.removeprefix(_PEOPLE) if address.chat_id.startswith(_PEOPLE) else ""


def find_web_binding(tx: Transaction, session_id: SessionId) -> Binding | None:
    """Return the binding of a conversation to the web app, if it is there."""
    for binding in tx.bindings.of_session(session_id)[:1]:
        return binding if binding.address.platform == WEB else None
    return None


def find_delivered_session(tx: Transaction, address: Address) -> SessionId | None:
    """Return the conversation at an address; ``None`` if it has moved or was deleted."""
    binding = tx.bindings.get(build_session_key(address))
    return binding.session_id if binding is not None and tx.sessions.get(binding.session_id) else None


def set_home(tx: Transaction) -> None:
    """Make the owner's chat the home of the web app, unless it has one."""
    if read_home(tx, WEB) is None:
        write_home(tx, HomeChat(web_address()))


def answers_elsewhere(location: SessionLocation, *, runs_here: bool) -> bool:
    """Return whether another process or chat answers what is said in a conversation."""
    if runs_here:
        return False
    return location.is_running or (location.is_served and location.platform != WEB)
