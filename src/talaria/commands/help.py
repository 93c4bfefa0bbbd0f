"""Slash command `/help`: list the available commands."""

from talaria.commands.command import Command, CommandContext
from talaria.commands.dispatch import find_commands, group_help_by_category
from talaria.core.errors import NotFound


async def run_help(context: CommandContext) -> None:
    """Show all commands by category, or one of them."""
    if not context.arguments:
        context.surface.show(_format_overview(context.commands))
        return
    found = find_commands(context.arguments, context.commands)
    if not found:
        raise NotFound(f"There is no command `{context.arguments}`. `/help` lists them.")
    context.surface.show("\n\n".join(map(_describe_command, found)))


def _format_overview(commands: tuple[Command, ...]) -> str:
    usages = {f"/{command.name}": command.usage for command in commands}
    parts = ["`/keys`, or `?` on an empty line, shows the keyboard shortcuts."] if "/keys" in usages else []
    for category, entries in group_help_by_category(commands).items():
        lines = [f"- `{usages[name]}` {text}" for name, text in entries.items()]
        parts.append(f"**{category}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _describe_command(command: Command) -> str:
    alias_note = f"\n\nAlso: {', '.join(f'`/{alias}`' for alias in command.aliases)}" if command.aliases else ""
    return f"`{command.usage}` {command.help}{alias_note}"


HELP = Command(
    name="help",
    category="Program",
    help="List the commands, or explain one.",
    hint="[command]",
    aliases=("h", "?"),
    run=run_help,
    reads=True,
)
