"""Execute one run of a job: lease it, run its script, call its agent, record and report its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

from msgspec import Struct, structs

from talaria.agent.context_window import unwrap_messages
from talaria.contracts.clock import Clock
from talaria.contracts.jobs import CRON
from talaria.contracts.sandbox import ShellResult
from talaria.contracts.skills import count_use
from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import Cap, Lease
from talaria.contracts.turns import TurnResult
from talaria.core.addresses import Address
from talaria.core.aio import run_with, shield_until_done
from talaria.core.errors import LeaseLost, Refused, StoreError, TalariaError
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.messages import SILENT, Message, Text
from talaria.core.session_context import SessionContext, bound
from talaria.runtime.active_session import SessionOpener
from talaria.runtime.open_session import OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.turns import TurnOptions, make_arrival
from talaria.runtime.workers import renew_lease, take
from talaria.schedule.due_runs import JobReport, Networks, resolve_targets, send_report
from talaria.schedule.job_store import PENDING_RUN, PendingRun, note_change

SCRIPT_INTERRUPTED = "The script was interrupted when the program ended. Its outcome is unknown."
STOPPED = "It was stopped before it had an answer."
_MARKUP = " \t\r\n*_`>"


def build_surface(run: PendingRun, targets: Sequence[str]) -> str:
    """Return the surface instructions for the agent."""
    there = f"Your reply is sent to {' and '.join(targets)}" if targets else "Your reply is stored in the job's history"
    return (
        f"The scheduled job “{run.name}” started this; nobody is there to answer questions. {there}: write "
        f"only what should be read there, or only {SILENT} if there is nothing to report."
    )


def build_question(run: PendingRun, skills: Sequence[tuple[str, str]], ran: ShellResult | None) -> str:
    """Return the prompt for the agent: skills, the script's output, and the job's prompt."""
    parts = [f"What you have learned about {name}:\n\n{text}" for name, text in skills]
    if run.remark:
        parts.append(f"({run.remark})")
    if ran is not None:
        parts.append(f"A script ran for this and {_describe_exit(ran)}. It printed:\n\n```\n{ran.output.rstrip()}\n```")
    elif run.plan.script:
        parts.append(f"({SCRIPT_INTERRUPTED})")
    return "\n\n".join([*parts, run.plan.prompt.strip()])


def read_outcome(end: TurnEnd) -> tuple[bool, str]:
    """Return whether a turn was answered, and its text."""
    match end:
        case TurnAnswered(text):
            return True, text
        case TurnFailed(text) | TurnOutOfBudget(text=text):
            return False, text
        case TurnStopped():
            return False, STOPPED


def read_script_outcome(ran: ShellResult) -> tuple[bool, str]:
    """Return the same for a job that is only a script."""
    if ran.code == 0:
        return True, ran.output.strip()
    return False, f"The script {_describe_exit(ran)}.\n\n```\n{ran.output.rstrip()}\n```"


def format_report(run: PendingRun, text: str, *, done: bool) -> str:
    """Return the report for people; empty if there is nothing to report."""
    if not done:
        return f"**{run.name}** failed: {text}"
    if not text.strip() or text.lstrip(_MARKUP).startswith(SILENT):
        return ""
    return f"*{run.remark}*\n\n{text}" if run.remark else text


def _describe_exit(ran: ShellResult) -> str:
    return "timed out" if ran.code is None else f"ended with exit code {ran.code}"


LEASE = timedelta(seconds=15)
_MAX_TRIES = 5
_MAX_OUTPUT = 20_000
log = logging.getLogger(__name__)


class RunDependencies(Struct, frozen=True, kw_only=True):
    """Dependencies of runs.

    ``folder`` is the default working folder; ``script`` runs a shell command there, in a context; ``skill`` returns the
    text of a skill; ``caps`` the spending caps of a run.
    """

    opener: SessionOpener
    jobs: asyncio.TaskGroup
    clock: Clock
    folder: Path
    networks: Networks
    script: Callable[[str, Path, SessionContext], Awaitable[ShellResult]]
    skill: Callable[[str], str]
    caps: Callable[[PendingRun], tuple[Cap, ...]]
    lease: timedelta = LEASE


async def execute_run(run: PendingRun, dependencies: RunDependencies) -> bool:
    """Continue a run from its current stage to its end; ``False`` if another worker has it.

    After an interruption at any point it can be resumed: by this worker, or by another when the lease has expired.
    """
    claim = dependencies.opener.store.write(lambda tx: _claim(tx, run.key, dependencies.lease))
    claimed = await shield_until_done(claim, undo=lambda claimed: _release_claim(dependencies, claimed))
    if claimed is None:
        return False
    lease, run = claimed
    is_at_fault = False
    try:
        return await run_with(
            _RunExecution(run, lease, dependencies).finish(),
            renew_lease(dependencies.opener.store, lease, dependencies.lease),
        )
    except LeaseLost:
        log.info("job %s: another worker has taken over", run.name)
        return False
    except (TalariaError, asyncio.CancelledError):
        raise
    except BaseException:
        is_at_fault = True
        raise
    finally:
        await asyncio.shield(_release(dependencies, run, lease, is_at_fault=is_at_fault))


class _RunExecution:
    """A run leased by this worker."""

    def __init__(self, run: PendingRun, lease: Lease, dependencies: RunDependencies) -> None:
        self._run = run
        self._lease = lease
        self._dependencies = dependencies
        self._store = dependencies.opener.store

    async def finish(self) -> bool:
        """Complete the run; ``False`` if it has to wait."""
        run = self._run
        with bound(SessionContext(session_id=run.session_id, source=CRON)):
            if run.tries > _MAX_TRIES:
                await self._record_end(f"the program ended during each of {_MAX_TRIES} attempts.", done=False)
                return True
            there = await self._store.read(lambda tx: resolve_targets(tx, run.plan, self._dependencies.networks()))
            context = self._make_context(there)
            if run.stage != "asked" and not await self._ask_agent(context):
                return True
            return await self._run_turn(there, context)

    def _make_context(self, there: list[Address]) -> SessionContext:
        first = there[0] if there else Address("", "")
        return SessionContext(
            source=CRON,
            session_id=self._run.session_id,
            async_delivery=False,
            cron_auto_deliver_platform=first.platform,
            cron_auto_deliver_chat_id=first.chat_id,
            cron_auto_deliver_thread_id=first.thread_id,
        )

    async def _ask_agent(self, context: SessionContext) -> bool:
        """Run the script, if there is one, and call the agent; ``False`` if the script was all."""
        run, plan = self._run, self._run.plan
        ran = await self._run_script(context) if plan.script and run.stage == "due" else None
        if plan.plain:
            done, text = read_script_outcome(ran) if ran is not None else (False, SCRIPT_INTERRUPTED)
            await self._record_end(text, done=done)
            return False
        skills = [(name, await asyncio.to_thread(self._read_skill, name)) for name in plan.skills]
        body = Text(build_question(run, skills, ran))
        message = Message(role="user", parts=(body,), at=self._dependencies.clock.now())

        def record_asked(tx: Transaction) -> PendingRun:
            tx.leases.check(self._lease)
            for name in plan.skills:
                count_use(tx, name)
            tx.inbox.add(make_arrival(run.session_id, CRON, run.key, message))
            return _store_run(tx, structs.replace(run, stage="asked"))

        self._run = await self._store.write(record_asked)
        return True

    def _read_skill(self, name: str) -> str:
        try:
            return self._dependencies.skill(name)
        except TalariaError as error:
            return f"({error})"

    async def _run_script(self, context: SessionContext) -> ShellResult:
        """Run the script once: an interrupted one is not started again, because its outcome is unknown."""
        run = self._run

        def record_script_start(tx: Transaction) -> PendingRun:
            tx.leases.check(self._lease)
            return _store_run(tx, structs.replace(run, stage="script"))

        self._run = await self._store.write(record_script_start)
        try:
            return await self._dependencies.script(run.plan.script, self._folder, context)
        except Refused as error:
            return ShellResult(-1, str(error))

    @property
    def _folder(self) -> Path:
        folder = self._run.plan.folder
        return Path(folder).expanduser() if folder else self._dependencies.folder

    async def _run_turn(self, there: list[Address], context: SessionContext) -> bool:
        """Run the turn; a listener records and reports its end, in the transaction that ends it."""
        run = self._run
        request = OpenRequest(
            surface=SurfaceInfo(
                source=CRON,
                folder=self._folder,
                instructions=build_surface(run, [f"{one.platform}:{one.chat_id}" for one in there]),
                context=context,
                attended=False,
            ),
            session=ResumeSession(run.session_id),
            model=run.plan.model,
            titled=False,
            owner=run.owner,
            audience=run.plan.audience,
            turns=TurnOptions(listeners=(RunListener(run, self._dependencies),)),
            caps=self._dependencies.caps(run),
        )
        async with AsyncExitStack() as stack:
            try:
                chat = await self._dependencies.opener.open_session(request, stack, self._dependencies.jobs)
            except StoreError:
                raise
            except TalariaError as error:
                await self._record_end(error.public if run.owner else str(error), done=False)
                return True
            try:
                await chat.conversation.run_pending_turns()
            except Refused as error:
                log.warning("job %s not run, will retry: %s", run.name, error)
                return False
        await self._store.write(lambda tx: _end_if_finished(tx, run, self._dependencies))
        return True

    async def _record_end(self, text: str, *, done: bool) -> None:
        def record_end(tx: Transaction) -> None:
            tx.leases.check(self._lease)
            end_run(tx, self._run, self._dependencies, text, done=done)

        await self._store.write(record_end)


class RunListener:
    """The turn listener that ends, records and reports a run with its turn; implements `TurnListener`."""

    def __init__(self, run: PendingRun, dependencies: RunDependencies) -> None:
        self._run = run
        self._dependencies = dependencies

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> None:
        """End the run as well."""
        done, text = read_outcome(ending.end)
        end_run(tx, self._run, self._dependencies, text, done=done)


def end_run(tx: Transaction, run: PendingRun, dependencies: RunDependencies, text: str, *, done: bool) -> None:
    """Record how a run ended and report it; a second end changes nothing."""
    if not PENDING_RUN.delete(tx, run.key):
        return
    note_change(tx)
    body = format_report(run, text, done=done)
    job_report = JobReport(
        key=run.key, name=run.name, text=body, at=dependencies.clock.now(), sender=run.session_id or None
    )
    if body and not send_report(tx, run.plan, job_report, dependencies.networks()) and not run.plan.quiet:
        log.warning("job %s: its report was not sent, because its target chats can't be found", run.name)
    stored = text if len(text) <= _MAX_OUTPUT else f"{text[:_MAX_OUTPUT]}…"
    tx.jobs.end_run(structs.replace(run.record(), state="done" if done else "failed", output=stored))


def _end_if_finished(tx: Transaction, run: PendingRun, dependencies: RunDependencies) -> None:
    """End a run whose turn was ended by another surface that opened its session."""
    turns = tx.turns.find(run.session_id, limit=1)
    if not turns or turns[-1].state == "running" or PENDING_RUN.get(tx, run.key) is None:
        return
    last = unwrap_messages(tx.messages.last(run.session_id, 1))
    answered = turns[-1].state == "answered"
    text = last[-1].text if answered and last else turns[-1].error or STOPPED
    end_run(tx, run, dependencies, text, done=answered)


def _claim(tx: Transaction, key: str, duration: timedelta) -> tuple[Lease, PendingRun] | None:
    """Claim a run that is unowned, or whose worker was killed."""
    lease = take(tx, key, duration)
    if lease is None:
        return None
    # Only now: the previous owner may have just finished it.
    run = PENDING_RUN.get(tx, key)
    if run is None:
        tx.leases.release(lease)
        return None
    return lease, _store_run(tx, structs.replace(run, tries=run.tries + 1))


def _store_run(tx: Transaction, run: PendingRun) -> PendingRun:
    PENDING_RUN.write(tx, run.key, run)
    return run


async def _release_claim(dependencies: RunDependencies, claimed: tuple[Lease, PendingRun] | None) -> None:
    if claimed is not None:
        await _release(dependencies, claimed[1], claimed[0], is_at_fault=False)


async def _release(dependencies: RunDependencies, run: PendingRun, lease: Lease, *, is_at_fault: bool) -> None:
    """Release the run for another worker; it counts as a try only if the run itself is to blame."""

    def release_run(tx: Transaction) -> None:
        try:
            tx.leases.check(lease)
        except LeaseLost:
            return
        stored = PENDING_RUN.get(tx, run.key)
        if stored is not None and not is_at_fault:
            PENDING_RUN.write(tx, run.key, structs.replace(stored, tries=stored.tries - 1))
        tx.leases.release(lease)

    try:
        await dependencies.opener.store.write(release_run)
    except StoreError as error:
        log.warning("couldn't release a job; it becomes free when its lease expires: %s", error)
