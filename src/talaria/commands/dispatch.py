"""Command dispatch: find the command, check that it may run here and now, run it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from talaria.commands.command import Command, CommandContext
from talaria.contracts.hooks import COMMAND, Fact, session_facts
from talaria.core.errors import TalariaError
from talaria.core.session_context import SessionContext
from talaria.sessions.context import surface_context


def build_command_facts(context: CommandContext, **more: Fact) -> dict[str, Fact]:
    """Return the facts about a command for hooks: chat, session and sender, plus ``more``."""
    active_session, author = context.active_session, context.author
    known = SessionContext(
        source=active_session.request.source,
        user_id=author.id,
        user_name=author.name,
        session_id=active_session.session_id if active_session.is_open else "",
    )
    return {**session_facts(surface_context(known, active_session.key, context.surface.address)), **more}


def find_commands(name: str, commands: Sequence[Command]) -> list[Command]:
    """Return the command with this exact name, or all whose names start with it."""
    prefix = name.strip().removeprefix("/").lower()
    if not prefix:
        return []
    exact = [command for command in commands if prefix in command.names]
    return exact or [command for command in commands if any(known.startswith(prefix) for known in command.names)]


def group_help_by_category(commands: Iterable[Command]) -> Mapping[str, Mapping[str, str]]:
    """Return the help of each command by category and ``/name``."""
    found: dict[str, dict[str, str]] = {}
    for command in commands:
        found.setdefault(command.category, {})[f"/{command.name}"] = command.help
    return found


_NEVER_SUGGESTED = {"restart"}  # a typo should not lead to a restart of the gateway


def is_command(text: str) -> bool:
    """Return whether a text is a command: a slash and a word, not a path."""
    name = text.partition(" ")[0]
    return name.startswith("/") and len(name) > 1 and "/" not in name[1:] and "\n" not in name


async def run_command(text: str, context: CommandContext) -> None:
    """Run ``/name arguments``; every `TalariaError` is shown, not raised."""
    name, _, arguments = text.strip().partition(" ")
    found = find_commands(name, context.commands)
    if len(found) != 1:
        context.surface.show(_explain_no_match(name, found, context.commands))
        return
    command = found[0]
    refusal = _refuse_abbreviation(name, command, context) or _find_refusal(command, context)
    if refusal:
        context.surface.show(refusal)
        return
    facts = build_command_facts(context, command=command.name, text=arguments.strip(), owner=context.author.owner)
    context.application.hooks.fire(f"{COMMAND}{command.name}", facts)
    try:
        await command.run(structs.replace(context, arguments=arguments.strip()))
    except TalariaError as error:
        context.surface.show(error.for_owner if context.author.owner else error.public)


def select_usable_commands(commands: Sequence[Command], *, terminal: bool, owner: bool = True) -> tuple[Command, ...]:
    """Return the commands available to a user, in the terminal or in a chat."""
    excluded = "chat" if terminal else "terminal"
    return tuple(one for one in commands if one.where != excluded and (owner or one.who == "anyone"))


def _explain_no_match(name: str, found: Sequence[Command], commands: Sequence[Command]) -> str:
    if found:
        return f"`{name}` could be {', '.join(f'`/{command.name}`' for command in found)}. Type more of it."
    if suggestion := _suggest_replacement(name.removeprefix("/"), commands):
        return suggestion
    names = [known for command in commands for known in command.names if known not in _NEVER_SUGGESTED]
    typed = name.removeprefix("/").lower()
    near = [one for one in names if one.startswith(typed)] or difflib.get_close_matches(typed, names, n=1)
    return f"There is no command `{name}`. " + (f"Did you mean `/{near[0]}`?" if near else "`/help` lists them.")


def _suggest_replacement(name: str, commands: Sequence[Command]) -> str:
    """Return a suggestion if a command here replaces this one of another surface, or an empty string."""
    return next((f"Use `/{one.name}` here." for one in commands if name in one.instead_of), "")


def _refuse_abbreviation(name: str, command: Command, context: CommandContext) -> str:
    """Return the refusal of an abbreviated command; empty if it may run.

    A typo must not change anything, and a project's command must not pass for a built-in one.
    """
    is_whole = name.removeprefix("/").lower() in command.names
    if is_whole or (command.reads and context.screen is not None):
        return ""
    return _explain_no_match(name, (), (command,))


def _find_refusal(command: Command, context: CommandContext) -> str:
    if command not in select_usable_commands(
        context.commands, terminal=context.screen is not None, owner=context.author.owner
    ):
        if command.who == "owner" and not context.author.owner:
            return f"Only the owner of this agent can use `/{command.name}`."
        reason = f"`/{command.name}` works only in {'chats' if command.gateway_only else 'the terminal'}."
        return _suggest_replacement(command.name, context.commands) or reason
    if command.during_turn == "refused" and context.active_session.busy:
        return f"A turn is running. Stop it with `/stop` first, then use `/{command.name}`."
    return ""
