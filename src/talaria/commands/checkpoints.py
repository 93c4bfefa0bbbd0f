"""Slash commands `/rollback` and `/diff`: the agent's changes to files."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from talaria.commands.arguments import escape_markdown, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.checkpoints import ChangedFile, CheckpointHistory, RestorePlan, RestoreResult
from talaria.core.formatting import format_age, pluralize
from talaria.sessions.transcript_export import format_code_block

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
    kept = f"\n\nLeft as they are:\n{_list_paths(result.kept)}" if result.kept else ""
    return f"Restored {written}, removed {removed}. `/rollback 1` undoes this.{kept}"


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
