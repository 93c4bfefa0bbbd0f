"""Slash commands `/history`, `/new`, `/resume`, `/save`, `/search`, `/sessions` and `/title`."""

import asyncio
import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from talaria.commands.arguments import escape_markdown, parse_count, render_message
from talaria.commands.command import Command, CommandContext, build_command_facts
from talaria.commands.session_lookup import (
    describe_session,
    find_visible_sessions,
    format_resume_command,
    get_display_name,
    get_resume_handle,
    get_session_scope,
    load_last_exchange,
)
from talaria.contracts.clock import SystemClock
from talaria.contracts.hooks import SESSION_END, SESSION_RESET
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Hit, SearchQuery, Session, SessionChanges, StoredMessage
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import SessionId
from talaria.runtime.delegation.task_store import end_background
from talaria.sessions.transcript_export import FORMATS, export_file_name, format_inline_code, load_transcript

_CHOICE_LIMIT = 10
_SUGGESTION_LIMIT = 200
_JSON = "--json"
_OWNER_ONLY = 0o600
_HIT_LIMIT = 30
_SESSION_LIMIT = 6
_SNIPPET_LIMIT = 3
_MARKED_TEXT = re.compile(r"\\\[((?:[^\[\]\\]|\\[^\[\]])+)\\\]")
_DEFAULT_COUNT = 10
_MAX_MESSAGES = 100
_TEXT_LIMIT = 1_500
_MAX_SESSIONS = 50


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


async def run_save(context: CommandContext) -> None:
    """Write the whole transcript and show its path; never overwrites a file."""
    path_text, format_name = _parse_arguments(context.arguments)
    session_id = context.active_session.session_id
    transcript = await context.active_session.store.read(lambda tx: load_transcript(tx, session_id))
    if not transcript.messages:
        raise Refused("There is nothing to save: nothing has been said here yet.")
    suffix, write = FORMATS[format_name]
    path = context.active_session.chat.workspace.resolve(path_text or ".")
    text = write(transcript, context.application.zone)
    saved_path = await asyncio.to_thread(_write_new_file, path, export_file_name(transcript.session, suffix), text)
    context.surface.show(
        f"Saved {pluralize(len(transcript.messages), 'message')} to {format_inline_code(str(saved_path))}."
    )


async def offer_save_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the only option."""
    return [(_JSON, "everything, as JSON")]


def _parse_arguments(text: str) -> tuple[str, str]:
    """Return the file name and the format; raises `Refused`."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise Refused(f"`{text}`: a closing quotation mark is missing.") from error
    files = [word for word in arguments if word != _JSON]
    if len(files) > 1 or (files and files[0].startswith("-")):
        raise Refused("`/save [file] [--json]` takes one file. Put a name with spaces in quotation marks.")
    return "".join(files), "json" if _JSON in arguments else "markdown"


def _write_new_file(path: Path, name: str, text: str) -> Path:
    """Write a new file readable by the owner only; in a folder, ``name`` is its name.

    Raises `Refused` if it exists or cannot be written.
    """
    if path.is_dir():
        path /= name
    try:
        path.touch(_OWNER_ONLY, exist_ok=False)
        path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise Refused(f"{path} already exists. Choose another name.") from error
    except OSError as error:
        raise Refused(f"Can't write {path}: {error.strerror or error}.") from error
    return path


SAVE = Command(
    name="save",
    category="Session",
    help="Save the conversation to a file, as Markdown or JSON.",
    hint="[file] [--json]",
    who="owner",
    run=run_save,
    offers=offer_save_choices,
)


async def run_search(context: CommandContext) -> None:
    """Show matching messages by session, best first."""
    if not context.arguments:
        raise Refused(
            'What should I search for? `/search night train` finds messages with both words; use "quotes" for a phrase.'
        )
    blocks = await context.active_session.store.read(lambda tx: _search(tx, context))
    context.surface.show("\n\n".join(blocks) or "Nothing found.")


def _search(tx: Transaction, context: CommandContext) -> list[str]:
    scope = get_session_scope(tx, context)
    query = SearchQuery(
        text=context.arguments, seen_by=scope.viewer, session_id=scope.only_session_id, limit=_HIT_LIMIT
    )
    return [
        _format_session_hits(tx, context, *group) for group in _group_by_session(tx.search.find(query))[:_SESSION_LIMIT]
    ]


def _group_by_session(hits: Sequence[Hit]) -> list[tuple[SessionId, list[Hit]]]:
    """Return the hits of each session, the session with the best hit first."""
    order = {session_id: index for index, session_id in enumerate(dict.fromkeys(hit.session_id for hit in hits))}
    ordered = sorted(hits, key=lambda hit: order[hit.session_id])
    return [(session_id, list(group)) for session_id, group in groupby(ordered, key=lambda hit: hit.session_id)]


def _format_session_hits(tx: Transaction, context: CommandContext, session_id: SessionId, hits: Iterable[Hit]) -> str:
    session = tx.sessions.get(session_id)
    assert session is not None
    here = session_id == context.active_session.session_id
    link = "this conversation" if here else format_resume_command(tx, session)
    name = escape_markdown(get_display_name(tx, session))
    heading = f"**{name}** ({describe_session(session, SystemClock().now())}): {link}"
    return "\n".join(
        [heading, "", *(f"- {hit.role}: {_highlight(hit.snippet)}" for hit in list(hits)[:_SNIPPET_LIMIT])]
    )


def _highlight(snippet: str) -> str:
    """Return a snippet with matches in bold instead of brackets."""
    return _MARKED_TEXT.sub(r"**\1**", escape_markdown(snippet))


SEARCH = Command(
    name="search",
    category="Session",
    help="Search your conversations.",
    hint="<words>",
    run=run_search,
    reads=True,
)


async def run_history(context: CommandContext) -> None:
    """Show the last messages, with one line per tool call."""
    count = parse_count(context, default=_DEFAULT_COUNT, maximum=_MAX_MESSAGES)
    session_id = context.active_session.session_id
    messages = await context.active_session.store.read(lambda tx: tx.messages.last(session_id, count))
    if not messages:
        context.surface.show("Nothing has been said here yet.")
        return
    earlier = messages[0].seq - 1
    opening = [f"*{earlier} earlier; `/save` writes them all to a file.*"] if earlier else []
    context.surface.show("\n\n".join([*opening, *map(_format_message, messages)]))


def _format_message(stored: StoredMessage) -> str:
    message = stored.message
    body = render_message(message, _TEXT_LIMIT) or "*(no text)*"
    if message.role == "tool":
        return body
    who = escape_markdown(message.author) or ("You" if message.role == "user" else "Agent")
    return f"**{who}** · {format_age(message.at, SystemClock().now())}\n\n{body}"


HISTORY = Command(
    name="history", category="Session", help="Show the latest messages.", hint="[count]", run=run_history, reads=True
)


async def run_new(context: CommandContext) -> None:
    """Start a new session, with an optional title, and show how to return to the previous one."""
    active_session, title = context.active_session, context.arguments
    previous_id, previous_facts = active_session.session_id, build_command_facts(context, reason="command")
    await active_session.reset_session(leaving=end_background)
    context.application.hooks.fire(SESSION_END, previous_facts)
    context.application.hooks.fire(
        SESSION_RESET, build_command_facts(context, reason="command", previous_session_id=previous_id)
    )
    if title:
        here = active_session.session_id
        await active_session.store.write(lambda tx: tx.sessions.update(here, SessionChanges(title=title)))
    announcement = (
        f"Started a new conversation: *{escape_markdown(title)}*." if title else "Started a new conversation."
    )
    back = await active_session.store.read(lambda tx: _explain_resume(tx, previous_id))
    context.surface.show(f"{announcement} {back}".rstrip())


def _explain_resume(tx: Transaction, previous_id: SessionId) -> str:
    session = tx.sessions.get(previous_id)
    return f"{format_resume_command(tx, session)} returns to the previous one." if session else ""


NEW = Command(
    name="new",
    aliases=("reset",),
    category="Session",
    help="Start a new conversation; the previous one is saved.",
    hint="[title]",
    during_turn="refused",
    run=run_new,
)


async def run_sessions(context: CommandContext) -> None:
    """List the sessions, last used first."""
    limit = parse_count(context, default=_DEFAULT_COUNT, maximum=_MAX_SESSIONS)
    lines = await context.active_session.store.read(lambda tx: _format_sessions(tx, context, limit))
    context.surface.show("\n".join([*lines, "", "`/resume <id or title>` resumes one of them."]))


def _format_sessions(tx: Transaction, context: CommandContext, limit: int) -> list[str]:
    now, here = SystemClock().now(), context.active_session.session_id
    return [
        f"- **{escape_markdown(get_display_name(tx, one))}**{' (this one)' if one.id == here else ''}:"
        f" {describe_session(one, now)}, `{one.id}`"
        for one in find_visible_sessions(tx, context, limit=limit)
    ]


SESSIONS = Command(
    name="sessions",
    category="Session",
    help="List the latest conversations.",
    hint="[count]",
    run=run_sessions,
    reads=True,
)


async def run_title(context: CommandContext) -> None:
    """Set or show the title of the session."""
    store, session_id, title = context.active_session.store, context.active_session.session_id, context.arguments
    if title:
        await store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(title=title)))
        context.surface.show(f"This conversation's title is now *{title}*.")
        return
    session = await store.read(lambda tx: tx.sessions.get(session_id))
    current_title = session.title if session else ""
    context.surface.show(
        f"This conversation's title is *{current_title}*." if current_title else "This conversation has no title yet."
    )


TITLE = Command(
    name="title", category="Session", help="Set or show this conversation's title.", hint="[title]", run=run_title
)
