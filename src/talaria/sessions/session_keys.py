"""Which conversation a place speaks in, whose that is, and who reads it."""

from msgspec import Struct, structs

from talaria.contracts.platform import Incoming
from talaria.core.addresses import Address, ChatType


class Belonging(Struct, frozen=True):
    """Whose a conversation is, and before whom it takes place; empty where nobody else reads it.

    A person is written ``platform:id`` or by name, the owner of the agent is empty, and a chat is written
    ``platform/id``: nobody's id can be taken for a chat.
    """

    owner: str
    audience: str


def build_session_key(
    source: Address, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> str:
    """Return the key of the conversation at a place: different for different ones, whatever their ids hold.

    ``agent:main:<platform>:<chat_type>:<chat_id>[:<thread_id>][:<user_id>]``. Private chats go by chat, groups by
    person, threads are shared, unless the switches say otherwise. Percent signs and colons in ids are written %25
    and %3A.
    """
    place = _settled(source)
    parts = [place.thread_id] if place.thread_id else []
    if not is_shared(
        source,
        group_sessions_per_user=group_sessions_per_user,
        thread_sessions_per_user=thread_sessions_per_user,
    ):
        parts += [] if place.chat_type == "private" else [place.user_id]
    return ":".join([build_key_stem(place.platform, place.chat_type, place.chat_id), *map(_escaped, parts)])


def build_key_stem(platform: str, chat_type: ChatType, chat_id: str) -> str:
    """Return what the keys of all places in a chat begin with; behind it one ends, or a colon follows."""
    return f"{keys_of(platform)}{_escaped(chat_type)}:{_escaped(chat_id)}"


def keys_of(platform: str) -> str:
    """Return what the keys of all places on a network begin with."""
    return f"agent:main:{_escaped(platform)}:"


def is_shared(source: Address, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False) -> bool:
    """Tell whether several people speak in the conversation at a place."""
    place = _settled(source)
    if place.chat_type == "private":
        return False
    per_user = thread_sessions_per_user if place.chat_type == "thread" else group_sessions_per_user
    return not (per_user and place.user_id)


def belonging(source: Address, person: str, *, shared: bool) -> Belonging:
    """Return whose the conversation at a place is: the person's, or that of all who share it."""
    chat = f"{source.platform}/{source.chat_id}"
    return Belonging(chat if shared else person, "" if source.chat_type == "private" else chat)


def place_of(incoming: Incoming) -> Address:
    """Return where something was said, with who said it."""
    return structs.replace(incoming.address, user_id=incoming.sender.id)


def _settled(source: Address) -> Address:
    """Return the place with one spelling for each: what has a thread is one, whatever the chat around it."""
    if source.chat_type == "private":
        return source
    if source.thread_id:
        return structs.replace(source, chat_type="thread")
    return structs.replace(source, chat_type="group") if source.chat_type == "thread" else source


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")
