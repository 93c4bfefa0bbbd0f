"""Slash command `/resume`: resume an earlier conversation."""

import difflib
from collections.abc import Sequence

from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import (
    describe_session,
    find_visible_sessions,
    get_display_name,
    get_resume_handle,
    load_last_exchange,
)
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionChanges
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId

_CHOICE_LIMIT = 10
_SUGGESTION_LIMIT = 200


async def run_resume(context: CommandContext) -> None:
    """Switch to the matching session and show its last exchange."""
    active_session = context.active_session
    chosen = await _choose_session(context)
    if chosen is None:
        context.surface.show("You stay in this conversation.")
        return
    if chosen.id == active_session.session_id:
        context.surface.show("You're already in this conversation.")
        return
    if chosen.archived_at:
        await active_session.store.write(lambda tx: tx.sessions.update(chosen.id, SessionChanges(archived=False)))
    chat = await active_session.move_to(chosen.id)
    name, last = await active_session.store.read(
        lambda tx: (get_display_name(tx, chosen), load_last_exchange(tx, chosen))
    )
    notes = "\n".join(chat.notes)
    context.surface.show("\n\n".join(filter(None, [f"Back in *{escape_markdown(name)}*.", last, notes])))


async def offer_resume_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the latest sessions by title or id."""
    now, here = SystemClock().now(), context.active_session.session_id

    def list_choices(tx: Transaction) -> list[tuple[str, str]]:
        found = [one for one in find_visible_sessions(tx, context, limit=2 * _CHOICE_LIMIT) if one.id != here]
        return [
            (handle := get_resume_handle(tx, one), _format_name(tx, one, handle) + describe_session(one, now))
            for one in found
        ]

    return await context.active_session.store.read(list_choices)


def _format_name(tx: Transaction, session: Session, handle: str) -> str:
    """Return the display name of a session that is found by its id, else an empty string."""
    return f"{get_display_name(tx, session)}, " if handle == session.id else ""


async def _choose_session(context: CommandContext) -> Session | None:
    found = await context.active_session.store.read(lambda tx: _find_candidates(tx, context))
    if context.arguments and len(found) == 1:
        return found[0]
    now = SystemClock().now()
    names = await context.active_session.store.read(
        lambda tx: [f"{get_display_name(tx, one)} ({describe_session(one, now)})" for one in found]
    )
    name = context.arguments
    question = f"“{name}” matches several conversations. Which one?" if name else "Which conversation?"
    index = await context.surface.choose(question, names)
    return None if index is None else found[index]


def _find_candidates(tx: Transaction, context: CommandContext) -> list[Session]:
    name = context.arguments
    if named := _find_by_id(tx, context):
        return [named]
    if name:
        found = find_visible_sessions(tx, context, matching=name, limit=_CHOICE_LIMIT, archived=None)
        if not found:
            raise NotFound(_explain_not_found(tx, context))
        return found
    others = find_visible_sessions(tx, context, limit=_CHOICE_LIMIT + 1)
    found = [one for one in others if one.id != context.active_session.session_id][:_CHOICE_LIMIT]
    if not found:
        raise NotFound("There are no other conversations yet.")
    return found


def _find_by_id(tx: Transaction, context: CommandContext) -> Session | None:
    """Return the session that the owner names by its full id, even if it is not visible here.

    Any session in the terminal; in a chat only the owner's own. Typing the full id means moving the session here.
    """
    session = tx.sessions.get(SessionId(context.arguments)) if context.author.owner else None
    return None if session is None or (session.owner and context.surface.address is not None) else session


def _explain_not_found(tx: Transaction, context: CommandContext) -> str:
    known = find_visible_sessions(tx, context, limit=_SUGGESTION_LIMIT, archived=None)
    titles = {one.title.casefold(): one.title for one in known if one.title}
    near = difflib.get_close_matches(context.arguments.casefold(), titles, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(f'*{escape_markdown(titles[one])}*' for one in near)}?" if near else ""
    return f"No conversation is called `{context.arguments}`. {hint or '`/sessions` lists the latest.'}"


RESUME = Command(
    name="resume",
    category="Session",
    help="Resume an earlier conversation.",
    hint="[id or part of the title]",
    during_turn="refused",
    run=run_resume,
    offers=offer_resume_choices,
)
