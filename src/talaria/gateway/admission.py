"""Admission of updates: one transaction authorizes the sender, finds the session and stores the message once."""

import logging
from datetime import timedelta, tzinfo
from typing import get_args

from msgspec import Struct, structs

from talaria.access.pairing import offer_code, render_pairing_text
from talaria.access.policy import Access, AccessAllowed, AccessDenied, NeedsPairing, is_paired
from talaria.access.routes import BY_HANDOFF, ROUTED_PERSONA, RoutedMessage, Routes
from talaria.commands.command import is_command
from talaria.contracts.platform import Content, Incoming, Sender
from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import PairedPerson
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.stores.sessions import Binding, NewSession, Session, SessionChanges, SessionFilter
from talaria.core.addresses import Address, ChatType, ReplyRoute, audience_of
from talaria.core.formatting import find_zone
from talaria.core.ids import SessionId, WorkerId
from talaria.core.messages import PROGRAM_AUTHORS, Text, chat_sender
from talaria.gateway.rooms import add_room_messages, is_for_agent, record_room_message
from talaria.gateway.session_reset import ResetPolicy, build_reset_policy, find_due_reset, format_reset_notice
from talaria.runtime.active_session import is_own_thread
from talaria.runtime.agent_cache import SessionVersion
from talaria.runtime.cross_posts import claim_ownerless_session, copy_mirrored_messages
from talaria.runtime.delegation.task_store import end_background
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turn_log import STEERING
from talaria.runtime.turns import InboxMessage, make_inbox_arrival
from talaria.runtime.workers import ForwardedUpdate, assign_worker, forward_update
from talaria.sessions.chat_directory import forget_channel, read_home, record_channel, write_home
from talaria.sessions.keys import (
    build_key_stem,
    build_session_key,
    identify_session,
    is_shared,
    link_user_ids,
    list_user_ids,
    resolve_ownership,
)
from talaria.sessions.preferences import PREFERENCES, Preferences
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatNetworkSettings, RoomSettings, find_room

COMMAND = "command"
_LOCK_SECONDS = timedelta(seconds=5)
_NO_SESSION = SessionId("")

log = logging.getLogger(__name__)


class AdmissionRules(Struct, frozen=True, kw_only=True):
    """Admission rules of one network and worker under one version of the settings."""

    platform: str
    worker: WorkerId
    access: Access
    network: ChatNetworkSettings
    reset: ResetPolicy
    zone: tzinfo | None
    busy: str
    routes: Routes | None = None


class Participant(Struct, frozen=True):
    """Authorized sender: the key of their session, its owner and audience, all ids of the sender, and the room.

    ``persona`` is the one that answers, empty for the agent itself; ``None`` if the settings have no personas.
    """

    key: str
    owner: str
    audience: str
    is_owner: bool
    ids: tuple[str, ...]
    room: RoomSettings | None = None
    persona: str | None = None

    @property
    def is_session_shared(self) -> bool:
        """Return whether several participants share the session."""
        return bool(self.audience) and self.owner == self.audience


class Admitted(Struct, frozen=True, kw_only=True):
    """Admitted update, for the worker that the chat is assigned to.

    A message is stored in the inbox of its session as ``item``; ``version`` is that of the session at that moment.
    Buttons and reactions are not stored: their ``item`` is 0. A command is settled there and runs outside turns.
    ``ended_session`` is the session that a reset has ended, ``notice`` the message about that for the chat.
    """

    participant: Participant
    worker: WorkerId
    session_id: SessionId = _NO_SESSION
    version: SessionVersion | None = None
    item: int = 0
    is_command: bool = False
    is_new_session: bool = False
    ended_session: SessionId = _NO_SESSION
    notice: str = ""


class Refusal(Struct, frozen=True):
    """Update whose sender may not talk to the agent, and the reply to it."""

    text: str


class Ignored(Struct, frozen=True):
    """Update without action or reply: not allowed, not addressed to the agent, or a duplicate."""


Outcome = Admitted | Refusal | Ignored


class _ResolvedSession(Struct, frozen=True):
    session: Session
    is_new: bool = False
    ended_session: SessionId = _NO_SESSION
    notice: str = ""


class _DueReset(Struct, frozen=True):
    session_id: SessionId
    notice: str


def make_admission_rules(settings: Settings, platform: str, worker: WorkerId) -> AdmissionRules:
    """Return the rules of a network under these settings."""
    network = settings.platforms.get(platform, ChatNetworkSettings())
    return AdmissionRules(
        platform=platform,
        worker=worker,
        access=Access(settings),
        network=network,
        reset=build_reset_policy(network),
        zone=find_zone(settings.cli.time_zone),
        busy=settings.gateway.busy,
        routes=Routes(settings) if settings.personas else None,
    )


def admit(tx: Transaction, update: Incoming, rules: AdmissionRules) -> Outcome:
    """Authorize the sender, store a message once in its session, and assign the chat to a worker.

    An update for a chat of another worker is forwarded to that worker in the same transaction.
    """
    if update.formerly:
        migrate_chat(tx, update)
        return Ignored()
    participant = authorize(tx, update, rules)
    if not isinstance(participant, Participant):
        return participant
    worker = assign_worker(tx, participant.key, rules.platform, rules.worker)
    admitted = Admitted(participant=participant, worker=worker)
    if not (update.button or update.reaction):
        found = _find_or_start_session(tx, participant, update, rules)
        item = _add_to_inbox(tx, found.session.id, update, rules)
        if item is None:
            return Ignored()
        if participant.room is not None and item.kind != COMMAND:
            add_room_messages(tx, found.session.id, update.address, participant.room)
        admitted = Admitted(
            participant=participant,
            worker=worker,
            session_id=found.session.id,
            version=SessionVersion(found.session.id, found.session.owner, PREFERENCES.version(tx, found.session.id)),
            item=item.id,
            is_command=item.kind == COMMAND,
            is_new_session=found.is_new,
            ended_session=found.ended_session,
            notice=found.notice,
        )
    if worker != rules.worker:
        _forward(tx, update, admitted)
    return admitted


def authorize(tx: Transaction, update: Incoming, rules: AdmissionRules) -> Participant | Refusal | Ignored:
    """Return the sender as a participant; otherwise `Ignored`, or a `Refusal` with a pairing code.

    Records every chat in which the sender may talk, even if the update is not addressed to the agent.
    """
    platform = rules.platform
    ids = _find_user_ids(tx, update.sender, platform)
    match rules.access.decide(update, lambda: is_paired(tx, platform, ids), ids):
        case AccessDenied():
            return Ignored()
        case NeedsPairing():
            return _offer_pairing(tx, update, platform)
        case AccessAllowed(owner=is_owner):
            record_channel(tx, update.address, update.chat_name, update.at)
    room = find_room(rules.network.rooms, update.address) if rules.network.rooms else None
    participant = _make_participant(update, ids, rules, room, is_owner=is_owner)
    if update.addressed or is_own_thread(tx, update.address, participant.key):
        return participant
    if room is None:
        return Ignored()
    if is_for_agent(update, room):
        return participant
    record_room_message(tx, update, room)
    return Ignored()


def find_chat_owner(address: Address, network: ChatNetworkSettings) -> str:
    """Return the owner of a chat's shared session; empty if each participant has their own session."""
    is_room = find_room(network.rooms, address) is not None if network.rooms else False
    shared = is_shared(
        structs.replace(address, user_id=address.user_id or "anybody"),
        group_sessions_per_user=network.group_sessions_per_user and not is_room,
        thread_sessions_per_user=network.thread_sessions_per_user and not is_room,
    )
    return audience_of(address) if shared else ""


def migrate_chat(tx: Transaction, moved: Incoming) -> int:
    """Rebind the sessions of a chat to its new id, and return how many were moved.

    A session that was started under the new id stays bound there. Repeating the call changes nothing.
    """
    count = 0
    for kind in get_args(ChatType):
        before = build_key_stem(moved.address.platform, kind, moved.formerly)
        now = build_key_stem(moved.address.platform, kind, moved.address.chat_id)
        for binding in tx.bindings.under(before):
            rest = binding.key.removeprefix(before)
            if rest and not rest.startswith(":"):
                continue  # another chat, whose id starts with this id
            tx.bindings.unbind(binding.key)
            if tx.bindings.get(now + rest) is None:
                _rebind(tx, now + rest, binding, moved)
                count += 1
    _move_directory_entry(tx, moved)
    log.warning(
        "%s: the id of chat %s (%s) changed to %s; update settings that use the old id",
        moved.address.platform,
        moved.formerly,
        moved.chat_name,
        moved.address.chat_id,
    )
    return count


def _rebind(tx: Transaction, key: str, binding: Binding, moved: Incoming) -> None:
    address = structs.replace(binding.address, chat_id=moved.address.chat_id)
    tx.bindings.bind(key, binding.session_id, address)
    session = tx.sessions.get(binding.session_id)
    if session is not None and session.owner == resolve_ownership(binding.address, "", shared=True).owner:
        shared = resolve_ownership(address, "", shared=True)
        tx.sessions.update(session.id, SessionChanges(owner=shared.owner, audience=shared.audience))


def _move_directory_entry(tx: Transaction, moved: Incoming) -> None:
    """Move the chat's entry in the directory and its role as the home chat to the new id."""
    before = structs.replace(moved.address, chat_id=moved.formerly)
    if forget_channel(tx, before):
        record_channel(tx, moved.address, moved.chat_name, moved.at)
    home = read_home(tx, before.platform)
    if home is not None and home.address.chat_id == moved.formerly:
        now = structs.replace(home.address, chat_id=moved.address.chat_id)
        write_home(tx, structs.replace(home, address=now))


def _find_user_ids(tx: Transaction, sender: Sender, platform: str) -> tuple[str, ...]:
    """Return all ids of a sender, linked with their aliases; the id that has a conversation represents them."""
    ids = list_user_ids(tx, platform, sender.id)
    if set(sender.aliases) <= set(ids):
        return ids
    every = (sender.id, *sender.aliases)
    addresses = {one: Address(platform, list_user_ids(tx, platform, one)[0]) for one in every}
    known = next((one for one in every if tx.bindings.get(build_session_key(addresses[one]))), sender.id)
    for one in every:
        link_user_ids(tx, platform, known, one)
    return list_user_ids(tx, platform, sender.id)


def _offer_pairing(tx: Transaction, update: Incoming, platform: str) -> Refusal | Ignored:
    """Return a new code for an unknown sender; ignore reactions, and senders whose code is still valid."""
    if update.reaction:
        return Ignored()
    person = PairedPerson(platform=platform, user_id=update.sender.id, name=update.sender.name)
    code = offer_code(tx, person, address=update.address)
    return Refusal(render_pairing_text(platform, code)) if code else Ignored()


def _make_participant(
    update: Incoming, ids: tuple[str, ...], rules: AdmissionRules, room: RoomSettings | None, *, is_owner: bool
) -> Participant:
    """Return the sender as a participant; everyone in a room shares its session."""
    person = "" if is_owner else rules.access.people.person(rules.platform, ids)
    key, ownership = identify_session(
        update,
        ids,
        person,
        group_sessions_per_user=rules.network.group_sessions_per_user and room is None,
        thread_sessions_per_user=rules.network.thread_sessions_per_user and room is None,
    )
    participant = Participant(key, ownership.owner, ownership.audience, is_owner, ids, room)
    return participant if rules.routes is None else _route(participant, update, rules, rules.routes)


def _route(participant: Participant, update: Incoming, rules: AdmissionRules, routes: Routes) -> Participant:
    """Return the participant with the persona that answers them."""
    shared = participant.is_session_shared
    people = () if shared else rules.access.people.names(rules.platform, participant.ids)
    choice = routes.choose(RoutedMessage(update.address, update.server, people))
    return structs.replace(participant, persona=choice.persona)


def _find_or_start_session(
    tx: Transaction, participant: Participant, update: Incoming, rules: AdmissionRules
) -> _ResolvedSession:
    found = _find_session(tx, participant, update, rules)
    if isinstance(found, Session):
        return _ResolvedSession(found)
    # Another worker that starts a session here blocks on this row until this transaction commits, and then finds it.
    lock = tx.leases.acquire(f"place:{participant.key}", _LOCK_SECONDS)
    found = _find_session(tx, participant, update, rules)
    resolved = _ResolvedSession(found) if isinstance(found, Session) else _start_session(tx, participant, update, found)
    if lock is not None:
        tx.leases.release(lock)
    return resolved


def _find_session(
    tx: Transaction, participant: Participant, update: Incoming, rules: AdmissionRules
) -> Session | _DueReset | None:
    """Return the session bound to a chat, or a `_DueReset` if it is due for a reset.

    Returns ``None`` if there is no session for this sender.
    """
    binding = tx.bindings.get(participant.key)
    session = tx.sessions.get(binding.session_id) if binding else None
    if binding is None or session is None or not _keeps_persona(tx, participant):
        return None
    if session.owner != participant.owner:
        session = _claim_session(tx, session, participant, update, rules)
        if session is None:
            return None
    reason = find_due_reset(tx, session, binding, rules.reset, update.at, rules.zone)
    return _DueReset(session.id, format_reset_notice(reason, rules.reset)) if reason else session


def _keeps_persona(tx: Transaction, participant: Participant) -> bool:
    """Return whether the chat is still routed to the same persona, or bound to its session by a handoff."""
    if participant.persona is None:
        return True
    routed = ROUTED_PERSONA.get(tx, participant.key) or ""
    if routed == BY_HANDOFF:
        ROUTED_PERSONA.write(tx, participant.key, participant.persona)
    return routed in (BY_HANDOFF, participant.persona)


def _claim_session(
    tx: Transaction, session: Session, participant: Participant, update: Incoming, rules: AdmissionRules
) -> Session | None:
    """Return another owner's session if the participant may continue it, else ``None``.

    All sessions that the participant owns under another of their names get the current name as owner.
    """
    session = claim_ownerless_session(tx, session, update.address, participant.owner)
    if participant.is_session_shared or session.owner == participant.owner:
        return session
    if session.owner not in rules.access.people.names(rules.platform, participant.ids):
        return None
    for one in tx.sessions.find(SessionFilter(owner=session.owner, archived=None, limit=None)):
        tx.sessions.update(one.id, SessionChanges(owner=participant.owner))
    return tx.sessions.get(session.id)


def _start_session(
    tx: Transaction, participant: Participant, update: Incoming, reset: _DueReset | None
) -> _ResolvedSession:
    """Create a session and bind it to the chat; end the background work of a session that is reset."""
    session = tx.sessions.create(
        NewSession(source=update.address.platform, owner=participant.owner, audience=participant.audience)
    )
    tx.bindings.bind(participant.key, session.id, update.address)
    if participant.persona is not None:
        ROUTED_PERSONA.write(tx, participant.key, participant.persona)
        if participant.persona:
            PREFERENCES.write(tx, session.id, Preferences(persona=participant.persona))
    copy_mirrored_messages(tx, session.id, update.address)
    if reset is None:
        return _ResolvedSession(session, is_new=True)
    end_background(tx, reset.session_id)
    return _ResolvedSession(session, is_new=True, ended_session=reset.session_id, notice=reset.notice)


def _add_to_inbox(tx: Transaction, session_id: SessionId, update: Incoming, rules: AdmissionRules) -> InboxItem | None:
    """Store a message in the inbox; ``None`` for a duplicate.

    A command is settled at once, because it runs outside turns.
    """
    message = InboxMessage(
        role="user",
        parts=_make_parts(update),
        at=update.at,
        author=_author_of(update.sender) if update.address.chat_type != "private" else update.sender.name,
        platform_message_id=update.message_id or None,
        route=_make_route(update),
        attachments=update.attachments,
        sender=chat_sender(rules.platform, update.sender.id),
    )
    waiting = STEERING if rules.busy == "steer" else "message"
    kind = COMMAND if update.text.startswith("/") and is_command(update.text) else waiting
    item = tx.inbox.add(make_inbox_arrival(session_id, rules.platform, update.external_id, message, kind=kind))
    if item is not None and item.kind == COMMAND:
        tx.inbox.settle([item.id])
    return item


def _author_of(sender: Sender) -> str:
    """Return the author of a message in a group, never empty and never that of the program."""
    name = sender.name or sender.id or "somebody"
    return f"{name} (a person)" if name in PROGRAM_AUTHORS else name


def _make_parts(update: Incoming) -> tuple[Text, ...]:
    if update.text or update.attachments:
        return (Text(update.text),) if update.text else ()
    return (Text("(an empty message)"),)


def _make_route(update: Incoming) -> ReplyRoute:
    return ReplyRoute(
        update.address,
        update.message_id,
        user_id=update.sender.id,
        user_name=update.sender.name,
        chat_name=update.chat_name,
        spoken=any(one.kind == "voice" for one in update.attachments),
    )


def _forward(tx: Transaction, update: Incoming, admitted: Admitted) -> None:
    """Store an update for the worker that owns the chat, and queue the notice about a reset, if any."""
    forward_update(tx, admitted.worker, ForwardedUpdate(update, admitted.session_id, admitted.item))
    if admitted.notice:
        queue_notice(tx, admitted.session_id, update.address, Content(text=admitted.notice))
