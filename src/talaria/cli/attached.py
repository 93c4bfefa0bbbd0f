"""A conversation as it is seen from a terminal that is not its place: followed, spoken to, taken over."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct

from talaria.cli.approval import TerminalAsks, answer_in_terminal
from talaria.cli.session_actions.names import called
from talaria.cli.wishes import SOURCE
from talaria.commands.conversations import last_exchange
from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd
from talaria.core.ids import TurnId, WorkerId, is_gone
from talaria.core.messages import Message, Text
from talaria.core.senders import OWNER
from talaria.sessions.branching import exchanges
from talaria.sessions.holding import lane_of
from talaria.sessions.homes import gateway_alive
from talaria.sessions.live_events import Seen
from talaria.sessions.live_speaking import DistantAnswers, say_there
from talaria.sessions.live_watch import Watch
from talaria.sessions.live_words import LIVE, Stop, move_along, speak_to
from talaria.sessions.outgoing import OUTBOX, queue_notice
from talaria.sessions.relocation import bring

_LOOK_AGAIN = 1.0
_LOOKED_BACK = 60
_HELP = "While you watch there are `/stop`, `/steer TEXT`, `/take` and `/detach`; everything else works after `/take`."
_NOBODY = "Nobody works on this conversation now, so nobody would answer: `/take` lets it go on here."
_STEERED = "It joins the running turn before its next step if that turn is yours; otherwise it gets its own turn next."
_GONE = "The process that worked on it is gone. It goes on as soon as another takes it up …"


class Whereabouts(Struct, frozen=True, kw_only=True):
    """Where a conversation is, and who works on it: ``owner`` is the process, if one does."""

    place: str = ""
    turn_id: TurnId | None = None
    owner: WorkerId | None = None
    answered: bool = False

    @property
    def told(self) -> str:
        """Return it as sentences."""
        lives = f"It lives on {self.place}." if self.place else "It lives in the terminal."
        if self.turn_id is None:
            return f"{lives} Nothing is running."
        if self.owner is None:
            return f"{lives} A turn was cut off there."
        machine, _, process = self.owner.rpartition(":")[0].rpartition(":")
        return f"{lives} A turn is running, in process {process} on {machine.partition('/')[0]}."


def whereabouts(tx: Transaction, session: Session) -> Whereabouts:
    """Return where a conversation is at this moment."""
    places = [binding.address for binding in tx.bindings.of_session(session.id)]
    running = tx.turns.find(session.id, running=True, limit=1)
    lease = tx.leases.get(lane_of(session.id))
    owner = lease.owner if lease is not None and not is_gone(lease.owner) else None
    place = places[0] if places else None
    thread = f", thread {place.thread_id}" if place and place.thread_id else ""
    return Whereabouts(
        place=f"{place.platform}, in chat {place.chat_id}{thread}" if place else "",
        turn_id=running[0].id if running else None,
        owner=owner,
        answered=bool((running and owner) or (places and gateway_alive(tx))),
    )


def what_was_said(tx: Transaction, session: Session) -> str:
    """Return the last exchange that is over: what belongs to a running turn is told by that."""
    messages = tx.messages.last(session.id, _LOOKED_BACK)
    begun = exchanges(messages)
    if begun and tx.turns.find(session.id, running=True, limit=1):
        messages = [one for one in messages if one.seq < begun[-1].seq]
    return last_exchange(messages)


class Attached:
    """Follows one conversation; ``see`` shows an event, ``tell`` a sentence, ``asks`` puts questions to the person.

    ``over`` is set when the person leaves; ``taken`` says that the conversation goes on with them.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        see: Callable[[Seen], None],
        tell: Callable[[str], None],
        asks: TerminalAsks | None,
        jobs: asyncio.TaskGroup,
    ) -> None:
        self.session = session
        self.busy = self.taken = False
        self.over = asyncio.Event()
        self._store = store
        self._see = see
        self._tell = tell
        self._asks = asks
        self._jobs = jobs
        self._answers = DistantAnswers(store, session.id, jobs.create_task)
        self._said_gone = False

    async def follow(self) -> None:
        """Show what happens until the person leaves."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(Watch(self._store, self.session.id, self._seen).follow())]
            tasks.append(group.create_task(self._look_around()))
            await self.over.wait()
            self._answers.close_all()
            for task in tasks:
                task.cancel()

    async def act(self, line: str) -> None:
        """Do what a line says; raises a sentence where that cannot be done."""
        name, _, words = line.partition(" ")
        match name:
            case "/detach" | "/quit" | "/exit":
                self.over.set()
            case "/stop":
                await self.stop()
            case "/take":
                await self.take()
            case "/steer" if words.strip():
                await self._say(words.strip(), steering=True)
            case "?":
                raise Refused(_HELP)
            case _ if name.startswith("/") and "/" not in name[1:]:
                raise Refused(_HELP)
            case _:
                await self._say(line, steering=False)

    async def stop(self) -> None:
        """Stop the running turn."""
        if not await speak_to(self._store, self.session.id, Stop()):
            raise Refused("Nothing is running.")

    async def take(self) -> None:
        """Let the conversation be here from now on, with the turn that is running; its old place says where it went."""

        def work(tx: Transaction) -> TurnId | None:
            bring(tx, self.session.id, "", None)
            return move_along(tx, self.session.id, None)

        self.taken = True
        running = await self._store.write(work)
        for topic in (OUTBOX, LIVE):
            await self._store.hint(topic)
        if running is None:
            self.over.set()
        else:
            self._tell("The conversation is here now. What is being answered goes on below; then it is your turn.")

    async def _say(self, text: str, *, steering: bool) -> None:
        """Say something there; people at its place see what was said."""
        where = await self._store.read(lambda tx: whereabouts(tx, self.session))
        if not where.answered:
            raise Refused(_NOBODY)
        await self._store.write(lambda tx: self._let_know(tx, text))
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        running = await say_there(self._store, self.session.id, message, source=SOURCE, sender=OWNER, steering=steering)
        await self._store.hint(OUTBOX)
        if running:
            self._tell(_STEERED if steering else "It waits behind the turn.")

    def _let_know(self, tx: Transaction, text: str) -> None:
        quoted = text.replace("\n", "\n> ")
        for binding in tx.bindings.of_session(self.session.id)[:1]:
            queue_notice(tx, self.session.id, binding.address, Content(text=f"From the terminal:\n> {quoted}"))

    def _seen(self, event: Seen) -> None:
        self._answers.note(event)
        if isinstance(event, TurnBegan):
            self.busy, self._said_gone = True, False
        elif isinstance(event, TurnEnd):
            self.busy = False
        self._see(event)
        if isinstance(event, ApprovalAsked | QuestionAsked) and self._asks is not None:
            self._jobs.create_task(answer_in_terminal(event, self._answers, self._asks))
        if self.taken and isinstance(event, TurnEnd):
            self.over.set()

    async def _look_around(self) -> None:
        """See to what nobody tells: a process that died, a turn that ended unseen, another place."""
        place: str | None = None
        while True:
            where = await self._store.read(lambda tx: whereabouts(tx, self.session))
            if place not in (None, where.place) and not self.taken:
                self._tell(f"The conversation has moved. {where.told}")
            place = where.place
            if where.turn_id is None:
                self.busy = False
            if self.taken and (where.turn_id is None or where.owner is None):
                self.over.set()
            elif where.turn_id is not None and where.owner is None and not self._said_gone:
                self._said_gone = True
                self._tell(_GONE)
            await asyncio.sleep(_LOOK_AGAIN)


def heading(session: Session, where: Whereabouts) -> str:
    """Return what is said first."""
    return f"You watch {called(session)}. {where.told} {_HELP}"
