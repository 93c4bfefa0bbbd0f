"""Every slash command there is, and the views of them that help, menus and access checks use."""

from collections.abc import Mapping, Sequence

from talaria.commands import goal, stop, subgoal, title
from talaria.commands import help as help_
from talaria.commands.command import Command
from talaria.commands.finding import by_category, matching

REGISTRY: tuple[Command, ...] = (
    title.COMMAND,
    goal.COMMAND,
    subgoal.COMMAND,
    stop.COMMAND,
    help_.COMMAND,
)


def resolve_command(name: str, commands: Sequence[Command] = REGISTRY) -> Command | None:
    """Return the command that a name, an alias or the beginning of just one of them means, with or without ``/``."""
    found = matching(name, commands)
    return found[0] if len(found) == 1 else None


COMMANDS: Mapping[str, str] = {f"/{command.name}": command.help for command in REGISTRY}
COMMANDS_BY_CATEGORY: Mapping[str, Mapping[str, str]] = by_category(REGISTRY)
GATEWAY_KNOWN_COMMANDS: frozenset[str] = frozenset(
    name for command in REGISTRY if not command.cli_only for name in command.names
)
