"""Slash commands `/branch`, `/retry` and `/undo`: continue the conversation in a branch."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, structs

from talaria.commands.arguments import escape_markdown, parse_count, truncate
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import format_resume_command, get_display_name
from talaria.contracts.checkpoints import ChangedFile, CheckpointHistory, RestorePlan, RestoreResult
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges, StoredMessage
from talaria.core.errors import NotFound, Refused, TalariaError
from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import OWNER, UNKNOWN, File, Image, Part, Text, Usage
from talaria.goals.goal import StoredGoal, read_goal
from talaria.goals.goal_store import KIND, withdraw_steps, write_goal
from talaria.sessions.branches import copy_spending, create_branch, is_empty_branch, list_exchanges
from talaria.sessions.titles import find_free_title
from talaria.sessions.transcript_export import format_code_block

_UNDO_SUFFIX = "before undo"


class UndoResult(Struct, frozen=True):
    """Result of an undo: the new branch, the removed messages and the session that still has them."""

    here: Session
    removed: tuple[StoredMessage, ...]
    saved_in: SessionId


def branch_session(tx: Transaction, origin: Session, last_seq: int, title: str) -> Session:
    """Create a branch, with a copy of the goal if it was set in the shared messages.

    The copied goal resumes after the next turn of the branch.
    """
    new_session = create_branch(tx, origin.id, last_seq, title)
    goal = read_goal(tx, origin.id).state
    unshared = tx.messages.load(origin.id, after=last_seq, limit=1)
    if goal is not None and not (unshared and unshared[0].message.at <= goal.set_at):
        copied_goal = structs.replace(
            goal, id=new_id(), usage=_subtract_usage(goal.usage, origin.usage), pending=None, parked=None
        )
        write_goal(tx, new_session.id, StoredGoal(None, 0), copied_goal)
        copy_spending(tx, goal.account, copied_goal.account)
    return new_session


async def undo_exchanges(context: CommandContext, count: int) -> UndoResult:
    """Switch to a branch without the last ``count`` exchanges; raises `Refused` if there are fewer."""
    active_session, before = context.active_session, context.active_session.session_id
    undone = await active_session.store.write(lambda tx: _undo_exchanges(tx, before, count))
    try:
        await switch_to_branch(context, undone.here)
    except TalariaError:
        await active_session.store.write(lambda tx: tx.sessions.update(before, SessionChanges(title=undone.here.title)))
        raise
    await active_session.store.write(lambda tx: _retire_original(tx, before, undone.here))
    return undone


async def switch_to_branch(context: CommandContext, new_session: Session) -> None:
    """Switch to a new branch; if it cannot be opened, delete it and re-raise."""
    try:
        await context.active_session.move_to(new_session.id)
    except TalariaError:
        await context.active_session.store.write(lambda tx: tx.sessions.delete(new_session.id))
        raise


def _undo_exchanges(tx: Transaction, session_id: SessionId, count: int) -> UndoResult:
    session = tx.sessions.get(session_id)
    messages = tx.messages.load(session_id)
    starts = list_exchanges(messages)
    if session is None or not starts:
        raise Refused("There is nothing to undo: nothing has been said here yet.")
    if count > len(starts):
        raise Refused(f"There are only {pluralize(len(starts), 'exchange')} to undo here.")
    last_seq = starts[-count].seq - 1
    new_session = branch_session(tx, session, last_seq, session.title)
    saved_in = session
    if is_empty_branch(session) and session.parent_id is not None and (parent := tx.sessions.get(session.parent_id)):
        saved_in = parent
    elif session.title:
        title = find_free_title(tx, session.title, _UNDO_SUFFIX, owner=session.owner)
        tx.sessions.update(session_id, SessionChanges(title=title))
    return UndoResult(new_session, tuple(one for one in messages if one.seq > last_seq), saved_in.id)


def _retire_original(tx: Transaction, session_id: SessionId, new_session: Session) -> None:
    """Pause the goal of the original, so that it does not run twice; delete an empty branch."""
    session = tx.sessions.get(session_id)
    if session is not None and is_empty_branch(session) and not tx.inbox.list_unsettled(session_id):
        tx.sessions.delete(session_id)
        return
    stored_goal = read_goal(tx, session_id)
    if stored_goal.state is not None and stored_goal.state.status == "active":
        withdraw_steps(tx, session_id)
        write_goal(
            tx,
            session_id,
            stored_goal,
            stored_goal.state.pause(f"what followed was undone; see {new_session.id}"),
        )


def _subtract_usage(usage: Usage, less: Usage) -> Usage:
    """Return the difference of two usages; the usage of a branch starts at zero."""
    pairs = zip(structs.astuple(usage), structs.astuple(less), strict=True)
    return Usage(*(one - other for one, other in pairs))


async def run_branch(context: CommandContext) -> None:
    """Create a branch that shares all messages so far, and switch to it."""
    active_session, here = context.active_session, context.active_session.session_id
    new_session = await active_session.store.write(lambda tx: _create_branch(tx, here, context.arguments))
    await switch_to_branch(context, new_session)
    name, back = await active_session.store.read(
        lambda tx: (get_display_name(tx, new_session), _get_resume_command(tx, here))
    )
    context.surface.show(f"You're now in the branch *{escape_markdown(name)}*. {back} returns to the original.")


def _create_branch(tx: Transaction, session_id: SessionId, title: str, *, after: int | None = None) -> Session:
    """Create a branch with all messages so far, or those up to the end of the exchange of message ``after``."""
    session = tx.sessions.get(session_id)
    if session is None or not session.message_count:
        raise Refused("There is nothing to branch from: nothing has been said here yet.")
    branch_title = title or (find_free_title(tx, session.title, "branch", owner=session.owner) if session.title else "")
    following = list_exchanges(tx.messages.load(session_id, after=after)) if after is not None else ()
    return branch_session(tx, session, following[0].seq - 1 if following else session.message_count, branch_title)


def _get_resume_command(tx: Transaction, session_id: SessionId) -> str:
    session = tx.sessions.get(session_id)
    return format_resume_command(tx, session) if session else f"`/resume {session_id}`"


BRANCH = Command(
    name="branch",
    category="Session",
    help="Continue in a branch; this conversation stays as it is.",
    hint="[title]",
    during_turn="refused",
    run=run_branch,
)


async def run_retry(context: CommandContext) -> None:
    """Undo the last exchange and send its text and images again.

    In a chat the text may be another person's, so the new turn runs there without anyone's rights.
    """
    undone = await undo_exchanges(context, 1)
    sender = OWNER if context.surface.address is None else UNKNOWN
    await context.active_session.put(*undone.removed[0].message.parts, sender=sender)
    context.surface.show(f"Asking again. `/resume {undone.saved_in}` has the earlier answer.")


async def edit_message(context: CommandContext, seq: int, parts: Sequence[Part]) -> None:
    """Undo everything from a person's message on, and send ``parts`` instead of it; its pictures and files stay."""
    session_id = context.active_session.session_id
    starts = list_exchanges(await context.active_session.store.read(lambda tx: tx.messages.load(session_id)))
    if seq not in [one.seq for one in starts]:
        raise NotFound("There is no such message to edit.")
    undone = await undo_exchanges(context, sum(one.seq >= seq for one in starts))
    attached = [part for part in undone.removed[0].message.parts if isinstance(part, Image | File)]
    await context.active_session.put(*parts, *(one for one in attached if one not in parts), sender=context.sender)


async def branch_after(context: CommandContext, seq: int) -> None:
    """Switch to a branch that ends with the exchange of message ``seq``."""
    active_session, here = context.active_session, context.active_session.session_id
    new_session = await active_session.store.write(lambda tx: _create_branch(tx, here, "", after=seq))
    await switch_to_branch(context, new_session)


RETRY = Command(
    name="retry",
    category="Session",
    help="Ask for a new answer to your last message.",
    during_turn="refused",
    run=run_retry,
)


_LONGEST_QUOTE = 80
_MAX_EXCHANGES = 1_000


async def run_undo(context: CommandContext) -> None:
    """Undo the last exchanges; they stay in the original session."""
    count = parse_count(context, default=1, maximum=_MAX_EXCHANGES)
    undone = await undo_exchanges(context, count)
    first = undone.removed[0].message
    text = "\n".join(part.text for part in first.parts if isinstance(part, Text))
    if context.screen is not None and first.author != KIND:
        context.screen.set_input_text(text)
        for picture in first.parts:
            if isinstance(picture, Image):
                context.screen.attach(picture)
    summary = pluralize(count, "exchange") if count > 1 else f"“{escape_markdown(truncate(text, _LONGEST_QUOTE))}”"
    context.surface.show(
        f"Undone: {summary}. Files were not changed back: see `/rollback`. `/resume {undone.saved_in}` returns to "
        "the conversation as it was."
    )


UNDO = Command(
    name="undo",
    category="Session",
    help="Undo the last exchange, or several.",
    hint="[count]",
    during_turn="refused",
    run=run_undo,
)


_MAX_LISTED = 20
_MAX_PATHS = 12
_MAX_DIFF = 12_000
_LONGEST_LABEL = 80
_CHOICES = ("Restore, and overwrite those edits", "Restore the other files", "Cancel")


async def run_rollback(context: CommandContext) -> None:
    """Restore the files of a checkpoint; without a number, list the checkpoints."""
    history = await _open_history(context)
    if not context.arguments:
        context.surface.show(await asyncio.to_thread(_list_checkpoints, history))
        return
    checkpoint = await asyncio.to_thread(history.find, context.arguments)
    plan = await asyncio.to_thread(history.plan, checkpoint)
    if plan.is_empty:
        context.surface.show("The files already are as they were at that time.")
        return
    keep: tuple[str, ...] = ()
    if plan.edited:
        chosen = await context.surface.choose(_describe_edits(plan), _CHOICES)
        if chosen not in (0, 1):
            context.surface.show("Nothing was changed.")
            return
        keep = plan.edited if chosen == 1 else ()
    result = await asyncio.to_thread(history.restore, checkpoint, keep=keep, overwrite=bool(plan.edited and not keep))
    context.surface.show(_describe_result(result))


async def run_diff(context: CommandContext) -> None:
    """Show what has changed since a checkpoint, by default the newest."""
    history = await _open_history(context)
    checkpoint = await asyncio.to_thread(history.find, context.arguments or "1")
    changes = await asyncio.to_thread(history.diff, checkpoint)
    if not changes:
        context.surface.show("Nothing has changed since that checkpoint.")
        return
    context.surface.show(format_code_block(truncate(format_changes(changes), _MAX_DIFF), "diff"))


def format_changes(changes: Sequence[ChangedFile]) -> str:
    """Return changes as one unified diff."""
    return "\n".join(_format_change(one) for one in changes)


def _format_change(change: ChangedFile) -> str:
    old = "/dev/null" if change.change == "created" else f"a/{change.path}"
    new = "/dev/null" if change.change == "deleted" else f"b/{change.path}"
    return f"--- {old}\n+++ {new}\n{change.diff or '@@ no text to compare @@'}"


async def _open_history(context: CommandContext) -> CheckpointHistory:
    folder = context.active_session.chat.workspace.folder
    return await asyncio.to_thread(context.application.knowledge.checkpoints.open, Path(folder))


def _list_checkpoints(history: CheckpointHistory) -> str:
    listed = history.list()
    if not listed:
        return f"There are no checkpoints of `{history.root}` yet: the agent hasn't changed anything here."
    now = datetime.now(UTC)
    lines = [
        f"{one.number}. {format_age(one.at, now)}, before “{escape_markdown(truncate(one.label, _LONGEST_LABEL))}”"
        for one in listed[:_MAX_LISTED]
    ]
    more = [f"… and {len(listed) - _MAX_LISTED} older ones"] if len(listed) > _MAX_LISTED else []
    advice = "`/diff N` shows what has changed since, `/rollback N` restores the files."
    return "\n".join([f"Checkpoints of `{history.root}`:", "", *lines, *more, "", advice])


def _describe_edits(plan: RestorePlan) -> str:
    return f"These files were edited since then, and not by me:\n{_list_paths(plan.edited)}\nRestore anyway?"


def _describe_result(result: RestoreResult) -> str:
    written, removed = pluralize(len(result.written), "file"), pluralize(len(result.removed), "file")
    left_text = f"\n\nLeft as they are:\n{_list_paths(result.kept)}" if result.kept else ""
    return f"Restored {written}, removed {removed}. `/rollback 1` undoes this.{left_text}"


def _list_paths(paths: Sequence[str]) -> str:
    lines = [f"- {escape_markdown(path)}" for path in paths[:_MAX_PATHS]]
    more = [f"- … and {len(paths) - _MAX_PATHS} more"] if len(paths) > _MAX_PATHS else []
    return "\n".join((*lines, *more))


async def offer_checkpoints(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the numbers of checkpoints, with their requests."""
    history = await _open_history(context)
    listed = await asyncio.to_thread(history.list)
    return [(str(one.number), truncate(one.label, _LONGEST_LABEL)) for one in listed]


ROLLBACK = Command(
    name="rollback",
    category="Session",
    help="List checkpoints of the files here, or return to one.",
    hint="[number]",
    who="owner",
    during_turn="refused",
    run=run_rollback,
    offers=offer_checkpoints,
)


DIFF = Command(
    name="diff",
    category="Session",
    help="Show how the files here have changed since a checkpoint.",
    hint="[number]",
    who="owner",
    reads=True,
    run=run_diff,
    offers=offer_checkpoints,
)
