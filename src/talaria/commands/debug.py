"""`/debug`: what a report about a fault should tell, and nothing private."""

import asyncio
import os
import platform
import re
from pathlib import Path

from talaria.commands.command import Command, Errand
from talaria.core.addresses import audience_of
from talaria.core.wording import counted
from talaria.sessions.transcripts import fenced

_TROUBLE = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) ")
_LAST_BYTES = 200_000
_LAST_LINES = 10


async def run(errand: Errand) -> None:
    """Show versions, store, model, changed settings and the last troubles in the log."""
    house, chat, seat = errand.house, errand.seat.chat, errand.seat
    identity = house.identity
    session_id = seat.session_id
    session = await seat.store.read(lambda tx: tx.sessions.get(session_id))
    tools = [tool for group in house.knowledge.toolsets() for tool in group.tools]
    settings = [f"  {one.key} = {one.value}" for one in house.settings_rack.list() if not one.is_default]
    lines = [
        f"talaria   {identity.version}",
        f"python    {platform.python_version()} on {platform.system()} {platform.release()} {platform.machine()}",
        f"profile   {identity.profile}, {identity.store}",
        f"place     {errand.place.name}",
        f"session   {session_id}, {counted(session.message_count if session else 0, 'message')}",
        f"model     {chat.provider}:{chat.model}, {chat.info.context_limit:,} tokens",
        f"tools     {sum(tool.enabled for tool in tools)} of {len(tools)} on",
        f"turn      {'running' if seat.busy else 'none'}",
        *(["settings", *settings] if settings else []),
    ]
    alone = not audience_of(errand.place.address)  # the log may tell of others
    troubles = await asyncio.to_thread(_troubles, identity.log_file) if alone else []
    if troubles:
        lines += ["log", *(f"  {line}" for line in troubles)]
    errand.place.show(fenced(_without_home("\n".join(lines))))


def _troubles(log_file: Path) -> list[str]:
    """Return the last warnings and errors; not what stands below them, which may quote what somebody said."""
    try:
        with log_file.open("rb") as opened:
            opened.seek(0, os.SEEK_END)
            opened.seek(max(0, opened.tell() - _LAST_BYTES))
            text = opened.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if _TROUBLE.match(line)][-_LAST_LINES:]


def _without_home(text: str) -> str:
    return text.replace(str(Path.home()), "~")


COMMAND = Command(
    name="debug",
    category="Program",
    help="Show what a report about a fault should tell: versions, model, settings, troubles.",
    who="owner",
    run=run,
    reads=True,
)
