"""Session keys of chats, threads and users, the ownership of their sessions, and user ids of one person."""

from collections.abc import Collection

from msgspec import Struct, structs

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address, ChatType

USER_IDS = NamedValue("user_ids", tuple[str, ...])


class Ownership(Struct, frozen=True):
    """The owner of a session, and its audience, which is empty for a private chat.

    A person is written ``platform:id`` or by name, the owner of the agent is empty, and a chat is written
    ``platform/id``, so that no id can be taken for a chat.
    """

    owner: str
    audience: str


def build_session_key(
    source: Address, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False
) -> str:
    """Return the session key of an address; it is unique whatever the ids contain.

    ``agent:main:<platform>:<chat_type>:<chat_id>[:<thread_id>][:<user_id>]``. By default private chats have one session
    per chat, groups one per person, and threads are shared. Percent signs and colons in ids are written %25 and %3A.
    """
    address = _normalize(source)
    parts = [address.thread_id] if address.thread_id else []
    if not is_shared(
        source,
        group_sessions_per_user=group_sessions_per_user,
        thread_sessions_per_user=thread_sessions_per_user,
    ):
        parts += [] if address.chat_type == "private" else [address.user_id]
    return ":".join(
        [build_key_stem(address.platform, address.chat_type, address.chat_id), *map(escape_key_part, parts)]
    )


def build_key_stem(platform: str, chat_type: ChatType, chat_id: str) -> str:
    """Return the common prefix of all keys in a chat; the key ends there or continues with a colon."""
    return f"{build_key_prefix(platform)}{escape_key_part(chat_type)}:{escape_key_part(chat_id)}"


def build_key_prefix(platform: str) -> str:
    """Return the common prefix of all keys on a network."""
    return f"agent:main:{escape_key_part(platform)}:"


def is_shared(source: Address, *, group_sessions_per_user: bool = True, thread_sessions_per_user: bool = False) -> bool:
    """Return whether several people share the session of an address."""
    address = _normalize(source)
    if address.chat_type == "private":
        return False
    per_user = thread_sessions_per_user if address.chat_type == "thread" else group_sessions_per_user
    return not (per_user and address.user_id)


def identify_session(
    incoming: Incoming,
    ids: Collection[str],
    person: str,
    *,
    group_sessions_per_user: bool = True,
    thread_sessions_per_user: bool = False,
) -> tuple[str, Ownership]:
    """Return the key of a message's session and its ownership.

    ``ids`` are all ids of the sender, ``person`` is the name under which they own sessions.
    """
    source = canonical_address(build_sender_address(incoming), ids)
    groups, threads = group_sessions_per_user, thread_sessions_per_user
    key = build_session_key(source, group_sessions_per_user=groups, thread_sessions_per_user=threads)
    shared = is_shared(source, group_sessions_per_user=groups, thread_sessions_per_user=threads)
    # A sender without an id could be anyone: they own only the session shared by the chat.
    return key, resolve_ownership(source, person, shared=shared or not incoming.sender.id)


def resolve_ownership(source: Address, person: str, *, shared: bool) -> Ownership:
    """Return the owner and audience of a session: its owner is the person, or the chat if shared."""
    chat = f"{source.platform}/{source.chat_id}"
    return Ownership(chat if shared else person, "" if source.chat_type == "private" else chat)


def build_sender_address(incoming: Incoming) -> Address:
    """Return the address of a message, with its sender."""
    return structs.replace(incoming.address, user_id=incoming.sender.id)


def _normalize(source: Address) -> Address:
    """Return the address in normal form: outside private chats, any address with a thread is a thread."""
    if source.chat_type == "private":
        return source
    if source.thread_id:
        return structs.replace(source, chat_type="thread")
    return structs.replace(source, chat_type="group") if source.chat_type == "thread" else source


def escape_key_part(part: str) -> str:
    """Return a part of a key in which colons and percent signs are escaped."""
    return part.replace("%", "%25").replace(":", "%3A")


def list_user_ids(tx: Transaction, platform: str, user_id: str) -> tuple[str, ...]:
    """Return all known ids of the same person on a network; the first represents them all."""
    return USER_IDS.get(tx, _build_key(platform, user_id)) or (user_id,)


def link_user_ids(tx: Transaction, platform: str, known: str, other: str) -> None:
    """Record that two ids belong to one person, for example a phone number and WhatsApp's alias for it.

    The representative of ``known`` now represents both.
    """
    ids = list_user_ids(tx, platform, known)
    if other in ids:
        return
    ids = tuple(dict.fromkeys((*ids, *list_user_ids(tx, platform, other))))
    for one in ids:
        USER_IDS.write(tx, _build_key(platform, one), ids)


def canonical_address(address: Address, ids: Collection[str]) -> Address:
    """Return the address with the first of a person's ids, so that all their ids give the same address."""
    first = next(iter(ids))
    chat_id = first if address.chat_type == "private" and address.chat_id in ids else address.chat_id
    return structs.replace(address, chat_id=chat_id, user_id=first)


def _build_key(platform: str, user_id: str) -> str:
    return f"{platform}:{user_id}"
