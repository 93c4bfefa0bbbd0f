"""Dispatch of admitted updates: run a command, answer a question, or pass a message to its session."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import structs

from talaria.access.policy import Access
from talaria.commands.command import Author, Command, is_command
from talaria.contracts.hooks import SESSION_END, SESSION_RESET, SESSION_START, Hooks, NoHooks, session_facts
from talaria.contracts.platform import Content, Incoming
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter
from talaria.core.addresses import Address
from talaria.core.errors import StoreError, TalariaError
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.admission import (
    AdmissionRules,
    Admitted,
    Participant,
    Refusal,
    admit,
    authorize,
    make_admission_rules,
)
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.chats.turn_view import ChoicePrompts
from talaria.runtime.outbox import queue_notice
from talaria.runtime.workers import (
    ForwardedUpdate,
    forwarding_topic,
    has_forwarded_updates,
    take_forwarded_updates,
    take_orphaned_updates,
)
from talaria.sessions.context import build_surface_context
from talaria.settings.model import LiveSettings

_MAX_PARTICIPANTS = 1000
_STORE_PAUSE = 1.0
_PROMPT_CLOSED = "That question is no longer open."
_NOT_ALLOWED = "Only the person I asked can answer that."
_STORE_DOWN = "My database isn't responding, so I can't do anything else right now."

log = logging.getLogger(__name__)


class Dispatcher:
    """Dispatcher of the updates of one network, in order per chat.

    ``commands`` returns the commands of chats. ``end_workspace`` ends what a session that a reset has ended left
    running in this process.
    """

    def __init__(
        self,
        store: Store,
        platform: str,
        settings: LiveSettings,
        commands: Callable[[], tuple[Command, ...]],
        chats: ChatRegistry,
        *,
        end_workspace: Callable[[SessionId], object],
        hooks: Hooks = NoHooks(),  # noqa: B008 (immutable)
    ) -> None:
        self._store = store
        self._platform = platform
        self._settings = settings
        self._commands = commands
        self._chats = chats
        self._end_workspace = end_workspace
        self._hooks = hooks
        self._participants: OrderedDict[tuple[Address, str], Participant] = OrderedDict()
        self._made_rules: tuple[int, AdmissionRules] | None = None

    @property
    def rules(self) -> AdmissionRules:
        """The rules of this network, rebuilt after the settings were replaced."""
        generation = self._settings.generation
        if self._made_rules is None or self._made_rules[0] != generation:
            rules = make_admission_rules(self._settings.current, self._platform, self._chats.worker)
            self._made_rules = generation, rules
        return self._made_rules[1]

    async def receive(self, update: Incoming) -> str:
        """Admit an update and start processing it; return the reply to a refused sender, else an empty string.

        The update is stored when this returns. Raises `StoreError` if it could not be.
        """
        rules = self.rules
        outcome = await self._store.write(partial(admit, update=update, rules=rules))
        match outcome:
            case Refusal(text=text):
                return text
            case Admitted():
                self._start(update, outcome)
        return ""

    async def receive_forwarded(self, forwarded: ForwardedUpdate) -> None:
        """Process an update that another worker has admitted."""
        rules = self.rules
        participant = await self._store.write(lambda tx: authorize(tx, forwarded.incoming, rules))
        if isinstance(participant, Participant):
            admitted = Admitted(
                participant=participant,
                worker=rules.worker,
                session_id=forwarded.session_id,
                item=forwarded.item,
                is_command=is_command(forwarded.incoming.text),
            )
            await self._process(forwarded.incoming, admitted)

    def reply_during_outage(self, update: Incoming) -> str:
        """Stop the turn of a chat or report its state while the store is down; return the reply.

        Only participants who were admitted before get one. The update is processed as usual once the store is back.
        """
        participant = self._participants.get((update.address, update.sender.id))
        word = update.text.strip().lower()
        if participant is None or word not in {"/stop", "/status"}:
            return ""
        chat = self._chats.find(participant.key)
        running = chat is not None and chat.active_session.busy
        if word == "/stop" and chat is not None and running and chat.active_session.chat.conversation.stop():
            return f"Stopping. {_STORE_DOWN}"
        return f"{'A turn is running here.' if running else 'Nothing is running here.'} {_STORE_DOWN}"

    def _start(self, update: Incoming, admitted: Admitted) -> None:
        """Process an admitted update in the background, unless it is forwarded to the worker that owns the chat."""
        self._remember(update, admitted.participant)
        if admitted.is_new_session:
            fire_session_hooks(self._hooks, update, admitted)
        if admitted.worker == self._chats.worker:  # opening a session must not delay other chats
            self._chats.jobs.create_task(self._process(update, admitted))

    def _remember(self, update: Incoming, participant: Participant) -> None:
        self._participants[update.address, update.sender.id] = participant
        self._participants.move_to_end((update.address, update.sender.id))
        while len(self._participants) > _MAX_PARTICIPANTS:
            self._participants.popitem(last=False)

    async def _process(self, update: Incoming, admitted: Admitted) -> None:
        """Process an admitted update. A message that fails here stays in the inbox, and the registry retries it."""
        try:
            if admitted.ended_session:
                self._end_workspace(admitted.ended_session)
            if not admitted.item:
                await self._answer_prompt(update, admitted.participant)
                return
            key, session_id = admitted.participant.key, admitted.session_id
            async with self._chats.in_turn(key, update.address, session_id, admitted.version) as chat:
                await self._dispatch(chat, update, admitted)
        except StoreError as error:
            self._log_delay(admitted, error)
            if admitted.is_command:  # it is settled in the inbox, so nothing else retries it
                await asyncio.sleep(_STORE_PAUSE)
                self._chats.jobs.create_task(self._process(update, admitted))
        except TalariaError as error:
            self._log_delay(admitted, error)
            await self._report_error(update, admitted, error)
        except Exception:  # a bug affects only this session
            log.exception("%s: couldn't open a session", self._platform)

    def _log_delay(self, admitted: Admitted, error: TalariaError) -> None:
        with bound(SessionContext(session_id=admitted.session_id, platform=self._platform)):
            log.warning("%s: a message is waiting: %s", self._platform, error)

    async def _dispatch(self, chat: Chat, update: Incoming, admitted: Admitted) -> None:
        """Run a command, answer an open question, or let the session process the new message in its inbox."""
        if admitted.notice:
            chat.show(admitted.notice)
        if admitted.is_command:
            self._run_command(chat, update, admitted.participant)
        elif not await self._is_answer(chat, update, admitted):
            await chat.process_message(admitted.item, self.rules.busy)

    def _run_command(self, chat: Chat, update: Incoming, participant: Participant) -> None:
        chat.active_session.request = structs.replace(
            chat.active_session.request,
            owner=participant.owner,
            audience=participant.audience,
            persona=participant.persona or "",
        )
        sender = update.sender
        author = Author(sender.name or sender.id, participant.is_owner, sender.id)
        commands = list_permitted_commands(
            self.rules.access, self._commands(), update, owner=participant.is_owner, ids=participant.ids
        )
        chat.use(update.text, author, commands, by=sender.id)

    async def _is_answer(self, chat: Chat, update: Incoming, admitted: Admitted) -> bool:
        """Return whether a message answered an open question; it is removed from the inbox then."""
        by, owner = update.sender.id, admitted.participant.is_owner
        if update.vouched or not chat.prompts.asked.is_set():
            return False  # a program sends events, not answers
        if not chat.prompts.fits(update.text, by, owner=owner):
            return False
        withdrawn = await self._store.write(lambda tx: _withdraw(tx, admitted))
        return withdrawn and chat.prompts.write(update.text, by, owner=owner)

    async def _answer_prompt(self, update: Incoming, participant: Participant) -> None:
        """Answer a question by a button or a reaction, which have no other use."""
        chat = self._chats.find(participant.key)
        if not update.button:
            if chat is not None:
                await self._answer_by_reaction(chat.prompts, update, participant)
        elif chat is None:
            await self._notify(update, participant, _PROMPT_CLOSED)
        elif not chat.prompts.press(update.button, update.sender.id, owner=participant.is_owner):
            text = _NOT_ALLOWED if chat.prompts.is_open(update.button) else _PROMPT_CLOSED
            await self._notify(update, participant, text)

    async def _answer_by_reaction(self, prompts: ChoicePrompts, update: Incoming, participant: Participant) -> None:
        """Answer an open question by a reaction to its message."""
        filters = [OutboxFilter(key=key, sent=True) for key in prompts.waiting]
        found = await self._store.read(lambda tx: [item for one in filters for item in tx.outbox.find(one)])
        for item in found:
            if item.reference == update.message_id:
                prompts.mark(item.key, update.reaction, update.sender.id, owner=participant.is_owner)

    async def _notify(self, update: Incoming, participant: Participant, text: str) -> None:
        """Reply to a button that has no effect."""
        content = Content(text=text, reply_to=update.message_id)

        def queue(tx: Transaction) -> None:
            binding = tx.bindings.get(participant.key)
            if binding is not None:
                key = f"button:{self._platform}:{update.external_id}"
                queue_notice(tx, binding.session_id, update.address, content, key)

        await self._store.write(queue)

    async def _report_error(self, update: Incoming, admitted: Admitted, error: TalariaError) -> None:
        """Notify the sender, once per message, why there is no answer yet."""
        reason = error.for_owner if admitted.participant.is_owner else error.public
        content = Content(text=f"I can't answer your message yet: {reason}", reply_to=update.message_id)
        session_id, key = admitted.session_id, f"trouble:{admitted.session_id}:{admitted.item}"
        try:
            await self._store.write(lambda tx: queue_notice(tx, session_id, update.address, content, key))
        except StoreError as failure:
            log.warning("%s: couldn't notify the sender: %s", self._platform, failure)


def fire_session_hooks(hooks: Hooks, update: Incoming, admitted: Admitted) -> None:
    """Fire hooks for a session started by an update, and for the one ended by a reset, if any."""
    known = SessionContext(
        source=update.address.platform,
        chat_name=update.chat_name,
        user_id=update.sender.id,
        user_name=update.sender.name,
        session_id=admitted.session_id,
        message_id=update.message_id,
    )
    facts = session_facts(build_surface_context(known, admitted.participant.key, update.address))
    hooks.fire(SESSION_START, facts)
    if admitted.ended_session:
        hooks.fire(SESSION_END, {**facts, "session_id": admitted.ended_session, "reason": "policy"})
        hooks.fire(SESSION_RESET, {**facts, "previous_session_id": admitted.ended_session, "reason": "policy"})


def list_permitted_commands(
    access: Access, commands: Sequence[Command], update: Incoming, *, owner: bool, ids: Collection[str] = ()
) -> tuple[Command, ...]:
    """Return the commands for a sender; those they may not use are marked as the owner's."""
    if owner:
        return tuple(commands)

    def restrict(command: Command) -> Command:
        default = command.who == "anyone"
        is_allowed = access.may_use_command(command.names, update, default=default, ids=ids)
        return structs.replace(command, who="anyone" if is_allowed else "owner")

    return tuple(restrict(command) for command in commands)


def _withdraw(tx: Transaction, admitted: Admitted) -> bool:
    """Remove a message from the inbox, unless its turn has begun; return whether it was removed."""
    waiting = [one for one in tx.inbox.list_unsettled(admitted.session_id) if one.id == admitted.item]
    if not waiting or waiting[0].state != "waiting":
        return False
    tx.inbox.settle([admitted.item])
    return True


class ForwardingWorker:
    """Worker for the updates forwarded to this process; ``dispatchers`` are those of its networks by name."""

    def __init__(self, store: Store, chats: ChatRegistry, dispatchers: Mapping[str, Dispatcher]) -> None:
        self._store = store
        self._chats = chats
        self._dispatchers = dispatchers

    async def serve(self) -> None:
        """Process forwarded updates as they arrive, until cancelled."""
        async with self._store.subscribe(forwarding_topic(self._chats.worker)) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.look()
                except StoreError as error:
                    log.warning("forwarded updates will be processed later: %s", error)

    async def look(self) -> int:
        """Start processing the stored updates, including those for dead workers, and return their number."""
        if not await self._store.read(has_forwarded_updates):
            return 0
        updates = await self._store.write(self._take_updates)
        for update in updates:
            dispatcher = self._dispatchers.get(update.incoming.address.platform)
            if dispatcher is not None:
                self._chats.jobs.create_task(dispatcher.receive_forwarded(update))
        return len(updates)

    def _take_updates(self, tx: Transaction) -> list[ForwardedUpdate]:
        return [*take_orphaned_updates(tx), *take_forwarded_updates(tx, self._chats.worker)]
