"""Slash command `/debug`: information for a bug report, without private data."""

import asyncio
import os
import platform
import re
from pathlib import Path

from talaria.commands.command import Command, CommandContext
from talaria.core.addresses import audience_of
from talaria.core.formatting import pluralize
from talaria.sessions.transcript_export import format_code_block

_PROBLEM_LINE = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) ")
_LAST_BYTES = 200_000
_LAST_LINES = 10


async def run_debug(context: CommandContext) -> None:
    """Show versions, store, model, changed settings and recent problems from the log.

    The log is left out where others can read the chat.
    """
    application, chat, active_session = context.application, context.active_session.chat, context.active_session
    identity = application.identity
    session_id = active_session.session_id
    session = await active_session.store.read(lambda tx: tx.sessions.get(session_id))
    tools = [tool for group in application.knowledge.toolsets() for tool in group.tools]
    settings = [f"  {one.key} = {one.value}" for one in application.settings_admin.list() if not one.is_default]
    lines = [
        f"talaria   {identity.version}",
        f"python    {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}",
        f"profile   {identity.profile}, {identity.store}",
        f"place     {context.surface.name}",
        f"session   {session_id}, {pluralize(session.message_count if session else 0, 'message')}",
        f"model     {chat.provider}:{chat.model}, {chat.info.context_limit:,} tokens",
        f"tools     {sum(tool.enabled for tool in tools)} of {len(tools)} on",
        f"turn      {'running' if active_session.busy else 'none'}",
        *(["settings", *settings] if settings else []),
    ]
    is_private = not audience_of(context.surface.address)  # the log may mention other people
    problems = await asyncio.to_thread(_read_problems, identity.log_file) if is_private else []
    if problems:
        lines += ["log", *(f"  {line}" for line in problems)]
    context.surface.show(format_code_block(_hide_home("\n".join(lines))))


def _read_problems(log_file: Path) -> list[str]:
    """Return the last warnings and errors, first lines only: further lines may quote messages."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LAST_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if _PROBLEM_LINE.match(line)][-_LAST_LINES:]


def _hide_home(text: str) -> str:
    return text.replace(str(Path.home()), "~")


DEBUG = Command(
    name="debug",
    category="Program",
    help="Show details for a bug report: versions, model, settings, recent errors.",
    who="owner",
    run=run_debug,
    reads=True,
)
