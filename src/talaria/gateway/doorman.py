"""Who comes in, under which name, into which conversation: the settings and the store put together."""

from datetime import datetime, tzinfo

from msgspec import Struct, structs

from talaria.commands.command import Command
from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.pairing import Person
from talaria.contracts.stores.sessions import Session, SessionChanges, SessionFilter
from talaria.core.addresses import Address, audience_of
from talaria.gateway.access import Access, Allowed, Denied
from talaria.gateway.farewell import farewell_said, quiet_since
from talaria.gateway.reset import policy_of, reset_due, reset_words
from talaria.sessions.aliases import known_ids, same_place
from talaria.sessions.channels import note_channel
from talaria.sessions.pairing import code_words, offer_code
from talaria.sessions.relocation import is_own_thread
from talaria.sessions.session_keys import belonging, build_session_key, is_shared, place_of
from talaria.settings.chats import ChatNetwork
from talaria.settings.model import Settings


class Guest(Struct, frozen=True):
    """Somebody who may speak here: under which key, as whose conversation, before which audience.

    ``commands`` are those of the place, as they are for them.
    """

    key: str
    owner: str
    audience: str
    is_owner: bool
    commands: tuple[Command, ...]

    @property
    def shares(self) -> bool:
        """Whether others speak in the same conversation."""
        return bool(self.audience) and self.owner == self.audience


def place_owner(address: Address, network: ChatNetwork) -> str:
    """Return whose the conversations at a place are, whoever speaks there; empty where each has their own."""
    shared = is_shared(
        structs.replace(address, user_id=address.user_id or "anybody"),
        group_sessions_per_user=network.group_sessions_per_user,
        thread_sessions_per_user=network.thread_sessions_per_user,
    )
    return audience_of(address) if shared else ""


class Doorman:
    """Decides for one network, by the settings as they are now."""

    def __init__(self, settings: Settings, platform: str, commands: tuple[Command, ...], zone: tzinfo | None) -> None:
        self._access = Access(settings)
        self._network = settings.platforms.get(platform, ChatNetwork())
        self._commands = commands
        self._zone = zone

    def admit(self, tx: Transaction, incoming: Incoming) -> Guest | str:
        """Return who it is, or what to tell them; an empty string is silence."""
        platform = incoming.address.platform
        ids = known_ids(tx, platform, incoming.sender.id)
        paired = any(tx.pairing.is_paired(platform, one) for one in ids)
        match self._access.decide(incoming, paired, ids):
            case Allowed(owner=owner):
                note_channel(tx, incoming.address, incoming.chat_name, incoming.at)
                guest = self._guest(incoming, ids, owner=owner)
                return guest if incoming.addressed or is_own_thread(tx, incoming.address, guest.key) else ""
            case Denied():
                return ""
            case _ if incoming.reaction:
                return ""  # who only marks a message has not asked for anything
            case _:
                person = Person(platform=platform, user_id=incoming.sender.id, name=incoming.sender.name)
                code = offer_code(tx, person, place=incoming.address)
                return code_words(platform, code) if code else ""

    def begins_anew(self, tx: Transaction, binding: Binding, now: datetime) -> str:
        """Return what to say when the conversation of a place is to begin anew; empty where it goes on."""
        session, policy = tx.sessions.get(binding.session_id), policy_of(self._network)
        if session is None or not session.message_count or tx.inbox.unsettled(session.id):
            return ""
        reason = farewell_said(tx, binding) or reset_due(policy, quiet_since(session, binding), now, self._zone)
        return reset_words(reason, policy) if reason else ""

    def goes_on(self, tx: Transaction, session: Session, guest: Guest, incoming: Incoming) -> bool:
        """Tell whether the conversation of a place is that of whoever speaks there now.

        What somebody said under another of their names becomes theirs under the one that counts.
        """
        if guest.shares or session.owner == guest.owner:
            return True
        platform = incoming.address.platform
        if session.owner not in self._access.people.names(platform, known_ids(tx, platform, incoming.sender.id)):
            return False
        for one in tx.sessions.find(SessionFilter(owner=session.owner, archived=None, limit=None)):
            tx.sessions.update(one.id, SessionChanges(owner=guest.owner))
        return True

    def _guest(self, incoming: Incoming, ids: tuple[str, ...], *, owner: bool) -> Guest:
        place = same_place(place_of(incoming), ids)
        groups, threads = self._network.group_sessions_per_user, self._network.thread_sessions_per_user
        key = build_session_key(place, group_sessions_per_user=groups, thread_sessions_per_user=threads)
        shared = is_shared(place, group_sessions_per_user=groups, thread_sessions_per_user=threads)
        people, platform = self._access.people, incoming.address.platform
        # Who has no id could be anybody: nothing is theirs but what is said in this chat.
        known = bool(incoming.sender.id)
        whose = belonging(place, "" if owner else people.person(platform, ids), shared=shared or not known)
        permitted = self._access.permitted(self._commands, incoming, owner=owner, ids=ids)
        return Guest(key, whose.owner, whose.audience, owner, permitted)
