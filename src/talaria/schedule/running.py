"""One run of a job: leased to a worker, its script run, its agent asked, its end recorded and told in one step."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, structs

from talaria.agent.conversation import said
from talaria.contracts.clock import Clock
from talaria.contracts.follower import Ending
from talaria.contracts.schedules import CRON
from talaria.contracts.shell import Ran
from talaria.contracts.store import Transaction
from talaria.contracts.stores.leases import Lease
from talaria.contracts.stores.ledger import Cap
from talaria.core.addresses import Address
from talaria.core.errors import LeaseLost, Refused, StoreError, TalariaError
from talaria.core.messages import Message, Text
from talaria.core.session_context import SessionContext, bound
from talaria.schedule.delivering import Networks, Report, places, send
from talaria.schedule.keeping import note_change
from talaria.schedule.plan import Run, read_run, write_run
from talaria.schedule.prompts import CUT_OFF, STOPPED, of_script, outcome, question, report, surface
from talaria.sessions.chat import ChatWish
from talaria.sessions.company import accompanied
from talaria.sessions.holding import hold, take
from talaria.sessions.lane import arrival
from talaria.sessions.outgoing import OUTBOX
from talaria.sessions.seat import ChatOpener
from talaria.sessions.unattended import unheard
from talaria.sessions.unbroken import unbroken

LEASE = timedelta(seconds=15)
_MOST_TRIES = 5
_KEPT_OUTPUT = 20_000

log = logging.getLogger(__name__)


class Means(Struct, frozen=True, kw_only=True):
    """What runs are made with.

    ``folder`` is where they work unless a job says so; ``script`` runs a line of the shell there, in a context;
    ``skill`` returns what one says; ``caps`` what may be spent on a run.
    """

    opener: ChatOpener
    jobs: asyncio.TaskGroup
    clock: Clock
    folder: Path
    networks: Networks
    script: Callable[[str, Path, SessionContext], Awaitable[Ran]]
    skill: Callable[[str], str]
    caps: Callable[[Run], tuple[Cap, ...]]
    lease: timedelta = LEASE


async def work_on(run: Run, means: Means) -> bool:
    """Go on with a run, from wherever it is, to its end; ``False`` where somebody else is at work on it.

    Cut off anywhere, it can be gone on with: by this worker, or by another when the lease has lapsed.
    """
    taking = means.opener.store.write(lambda tx: _take(tx, run.key, means.lease))
    taken = await unbroken(taking, undo=lambda taken: _put_back(means, taken))
    if taken is None:
        return False
    lease, run = taken
    blamed = False
    try:
        return await accompanied(_Work(run, lease, means).finish(), hold(means.opener.store, lease, means.lease))
    except LeaseLost:
        log.info("job %s: another worker goes on with it", run.name)
        return False
    except (TalariaError, asyncio.CancelledError):
        raise
    except BaseException:
        blamed = True
        raise
    finally:
        await asyncio.shield(_release(means, run, lease, blamed=blamed))


class _Work:
    """A run that is this worker's to do."""

    def __init__(self, run: Run, lease: Lease, means: Means) -> None:
        self._run = run
        self._lease = lease
        self._means = means
        self._store = means.opener.store

    async def finish(self) -> bool:
        """Do what is left of it; ``False`` where it has to wait."""
        run = self._run
        with bound(SessionContext(session_id=run.session_id, source=CRON)):
            if run.tries > _MOST_TRIES:
                await self._end(f"it was begun {_MOST_TRIES} times, and each time the program ended.", done=False)
                return True
            there = await self._store.read(lambda tx: places(tx, run.plan, self._means.networks()))
            context = self._context(there)
            if run.stage != "asked" and not await self._ask(context):
                return True
            return await self._answered(there, context)

    def _context(self, there: list[Address]) -> SessionContext:
        first = there[0] if there else Address("", "")
        return SessionContext(
            source=CRON,
            session_id=self._run.session_id,
            async_delivery=False,
            cron_auto_deliver_platform=first.platform,
            cron_auto_deliver_chat_id=first.chat_id,
            cron_auto_deliver_thread_id=first.thread_id,
        )

    async def _ask(self, context: SessionContext) -> bool:
        """Run the script, if there is one, and ask the agent; ``False`` where the script was all."""
        run, plan = self._run, self._run.plan
        ran = await self._script(context) if plan.script and run.stage == "due" else None
        if plan.plain:
            done, text = of_script(ran) if ran is not None else (False, CUT_OFF)
            await self._end(text, done=done)
            return False
        skills = [(name, await asyncio.to_thread(self._skill, name)) for name in plan.skills]
        words = Text(question(run, skills, ran))
        message = Message(role="user", parts=(words,), at=self._means.clock.now())

        def asked(tx: Transaction) -> Run:
            tx.leases.check(self._lease)
            tx.inbox.add(arrival(run.session_id, CRON, run.key, message))
            return _moved_on(tx, structs.replace(run, stage="asked"))

        self._run = await self._store.write(asked)
        return True

    def _skill(self, name: str) -> str:
        try:
            return self._means.skill(name)
        except TalariaError as error:
            return f"({error})"

    async def _script(self, context: SessionContext) -> Ran:
        """Run the script once: one that was cut off is not begun again, for nobody knows what it did."""
        run = self._run

        def begun(tx: Transaction) -> Run:
            tx.leases.check(self._lease)
            return _moved_on(tx, structs.replace(run, stage="script"))

        self._run = await self._store.write(begun)
        try:
            return await self._means.script(run.plan.script, self._folder, context)
        except Refused as error:
            return Ran(-1, str(error))

    @property
    def _folder(self) -> Path:
        folder = self._run.plan.folder
        return Path(folder).expanduser() if folder else self._means.folder

    async def _answered(self, there: list[Address], context: SessionContext) -> bool:
        """Take the turn; its end is recorded and told by a follower, in the transaction that ends it."""
        run = self._run
        wish = ChatWish(
            source=CRON,
            folder=self._folder,
            resume=run.session_id,
            model=run.plan.model,
            surface=surface(run, [f"{one.platform}:{one.chat_id}" for one in there]),
            titled=False,
            attended=False,
            owner=run.owner,
            audience=run.plan.audience,
            followers=(RunEnd(run, self._means),),
            context=context,
            caps=self._means.caps(run),
        )
        async with AsyncExitStack() as stack:
            try:
                chat = await self._means.opener.open_chat(wish, unheard, stack, self._means.jobs)
            except StoreError:
                raise
            except TalariaError as error:
                await self._end(error.public if run.owner else str(error), done=False)
                return True
            try:
                await chat.conversation.work_off()
            except Refused as error:
                log.warning("job %s waits: %s", run.name, error)
                return False
        await self._store.write(lambda tx: _settle(tx, run, self._means))
        await self._store.hint(OUTBOX)
        return True

    async def _end(self, text: str, *, done: bool) -> None:
        def ended(tx: Transaction) -> None:
            tx.leases.check(self._lease)
            end_run(tx, self._run, self._means, text, done=done)

        await self._store.write(ended)
        await self._store.hint(OUTBOX)


class RunEnd:
    """Implements `Follower`: with the end of its turn a run is over, recorded and told."""

    resumable: ClassVar = True

    def __init__(self, run: Run, means: Means) -> None:
        self._run = run
        self._means = means

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """End the run, too."""
        done, text = outcome(ending.end)
        end_run(tx, self._run, self._means, text, done=done)

    async def follow_up(self) -> bool:
        """Do nothing more."""
        return False


def end_run(tx: Transaction, run: Run, means: Means, text: str, *, done: bool) -> None:
    """Record how a run ended and tell it where the job reports; a second end changes nothing."""
    if not tx.state.delete(run.key):
        return
    note_change(tx)
    words = report(run, text, done=done)
    told = Report(key=run.key, name=run.name, text=words, at=means.clock.now(), sender=run.session_id or None)
    if words and not send(tx, run.plan, told, means.networks()) and not run.plan.quiet:
        log.warning("job %s: nobody was told, for the places where it reports cannot be found", run.name)
    kept = text if len(text) <= _KEPT_OUTPUT else f"{text[:_KEPT_OUTPUT]}…"
    tx.jobs.end_run(structs.replace(run.record(), state="done" if done else "failed", output=kept))


def _settle(tx: Transaction, run: Run, means: Means) -> None:
    """End a run whose turn was ended elsewhere, by somebody who opened its conversation."""
    turns = tx.turns.find(run.session_id, limit=1)
    if not turns or turns[-1].state == "running" or tx.state.get(run.key) is None:
        return
    last = said(tx.messages.last(run.session_id, 1))
    answered = turns[-1].state == "answered"
    text = last[-1].text if answered and last else turns[-1].error or STOPPED
    end_run(tx, run, means, text, done=answered)


def _take(tx: Transaction, key: str, duration: timedelta) -> tuple[Lease, Run] | None:
    """Take a run that nobody is at work on, or whose worker was killed."""
    lease = take(tx, key, duration)
    if lease is None:
        return None
    # Only now: whoever had it until a moment ago may have come to its end.
    entry = tx.state.get(key)
    if entry is None:
        tx.leases.release(lease)
        return None
    run = read_run(entry.value)
    return lease, _moved_on(tx, structs.replace(run, tries=run.tries + 1))


def _moved_on(tx: Transaction, run: Run) -> Run:
    tx.state.put(run.key, write_run(run))
    return run


async def _put_back(means: Means, taken: tuple[Lease, Run] | None) -> None:
    if taken is not None:
        await _release(means, taken[1], taken[0], blamed=False)


async def _release(means: Means, run: Run, lease: Lease, *, blamed: bool) -> None:
    """Let somebody else go on with it; only where the run itself is to blame this was one of its tries."""

    def let_go(tx: Transaction) -> None:
        try:
            tx.leases.check(lease)
        except LeaseLost:
            return
        entry = tx.state.get(run.key)
        if entry is not None and not blamed:
            kept = read_run(entry.value)
            tx.state.put(run.key, write_run(structs.replace(kept, tries=kept.tries - 1)))
        tx.leases.release(lease)

    try:
        await means.opener.store.write(let_go)
    except StoreError as error:
        log.warning("a job is free when its lease lapses: %s", error)
