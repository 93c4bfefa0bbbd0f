"""Use a command: find what was meant, check that it may be used here and now, and do it."""

import difflib
from collections.abc import Sequence

from msgspec import structs

from talaria.commands.command import Command, Errand
from talaria.commands.facts import errand_facts
from talaria.commands.finding import matching
from talaria.contracts.hooks import COMMAND
from talaria.core.errors import TalariaError

_NEVER_SUGGESTED = {"restart"}  # nobody should restart the gateway because of a typo


def is_command(text: str) -> bool:
    """Tell whether somebody means a command: a slash and a word, not a path."""
    name = text.partition(" ")[0]
    return name.startswith("/") and len(name) > 1 and "/" not in name[1:] and "\n" not in name


async def use_command(text: str, errand: Errand) -> None:
    """Do what ``/name words`` says, and show what became of it; never raises what a person can be told."""
    name, _, words = text.strip().partition(" ")
    found = matching(name, errand.commands)
    if len(found) != 1:
        errand.place.show(_unclear(name, found, errand.commands))
        return
    command = found[0]
    refusal = _abbreviation(name, command, errand) or _refusal(command, errand)
    if refusal:
        errand.place.show(refusal)
        return
    facts = errand_facts(errand, command=command.name, text=words.strip(), owner=errand.author.owner)
    errand.house.hooks.fire(f"{COMMAND}{command.name}", facts)
    try:
        await command.run(structs.replace(errand, words=words.strip()))
    except TalariaError as error:
        errand.place.show(error.for_owner if errand.author.owner else error.public)


def usable(commands: Sequence[Command], *, terminal: bool, owner: bool = True) -> tuple[Command, ...]:
    """Return the commands that somebody may use in the terminal, or in a chat."""
    elsewhere = "chat" if terminal else "terminal"
    return tuple(one for one in commands if one.where != elsewhere and (owner or one.who == "anyone"))


def _unclear(name: str, found: Sequence[Command], commands: Sequence[Command]) -> str:
    if found:
        return f"`{name}` could be {', '.join(f'`/{command.name}`' for command in found)}: type more of it."
    if instead := _instead(name.removeprefix("/"), commands):
        return instead
    names = [known for command in commands for known in command.names if known not in _NEVER_SUGGESTED]
    typed = name.removeprefix("/").lower()
    near = [one for one in names if one.startswith(typed)] or difflib.get_close_matches(typed, names, n=1)
    return f"There is no command `{name}`. " + (f"Did you mean `/{near[0]}`?" if near else "`/help` lists them.")


def _instead(name: str, commands: Sequence[Command]) -> str:
    """Return which command does here what one of another place does, if there is one."""
    return next((f"Use `/{one.name}` here." for one in commands if name in one.instead_of), "")


def _abbreviation(name: str, command: Command, errand: Errand) -> str:
    """Return what to answer to an abbreviation; empty where it runs.

    A typo must not change anything, and a command of a project must not pass for a built-in one.
    """
    is_whole = name.removeprefix("/").lower() in command.names
    if is_whole or (command.reads and errand.screen is not None):
        return ""
    return _unclear(name, (), (command,))


def _refusal(command: Command, errand: Errand) -> str:
    if command not in usable(errand.commands, terminal=errand.screen is not None, owner=errand.author.owner):
        if command.who == "owner" and not errand.author.owner:
            return f"`/{command.name}` is for the owner of this agent."
        works = f"`/{command.name}` works in {'chats' if command.gateway_only else 'the terminal'} only."
        return _instead(command.name, errand.commands) or works
    if command.during_turn == "refused" and errand.seat.busy:
        return f"A turn is running: stop it first (`/stop`), then use `/{command.name}`."
    return ""
