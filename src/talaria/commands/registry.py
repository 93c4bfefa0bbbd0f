"""Every slash command there is, and the views of them that help, menus and access checks use."""

from collections.abc import Mapping, Sequence

from talaria.commands import (
    approve,
    background,
    branch,
    compress,
    config,
    copy,
    cron,
    debug,
    deny,
    footer,
    goal,
    handoff,
    history,
    image,
    keys,
    memory,
    model,
    new,
    paste,
    personality,
    provider,
    queue,
    reasoning,
    restart,
    resume,
    retry,
    save,
    search,
    sessions,
    sethome,
    skills,
    start,
    status,
    steer,
    stop,
    subgoal,
    theme,
    title,
    tools,
    undo,
    usage,
    verbose,
    version,
    whoami,
)
from talaria.commands import help as help_
from talaria.commands import quit as quit_
from talaria.commands.command import Command
from talaria.commands.finding import by_category, matching

REGISTRY: tuple[Command, ...] = (
    new.COMMAND,
    restart.COMMAND,
    resume.COMMAND,
    title.COMMAND,
    sessions.COMMAND,
    search.COMMAND,
    branch.COMMAND,
    undo.COMMAND,
    retry.COMMAND,
    history.COMMAND,
    save.COMMAND,
    compress.COMMAND,
    status.COMMAND,
    usage.COMMAND,
    background.COMMAND,
    cron.COMMAND,
    handoff.COMMAND,
    handoff.MOVE,
    sethome.COMMAND,
    goal.COMMAND,
    subgoal.COMMAND,
    stop.COMMAND,
    queue.COMMAND,
    steer.COMMAND,
    approve.COMMAND,
    deny.COMMAND,
    image.COMMAND,
    paste.COMMAND,
    model.COMMAND,
    provider.COMMAND,
    reasoning.COMMAND,
    personality.COMMAND,
    tools.COMMAND,
    skills.COMMAND,
    memory.COMMAND,
    verbose.COMMAND,
    footer.COMMAND,
    theme.COMMAND,
    copy.COMMAND,
    start.COMMAND,
    help_.COMMAND,
    keys.COMMAND,
    whoami.COMMAND,
    config.COMMAND,
    version.COMMAND,
    debug.COMMAND,
    quit_.COMMAND,
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
