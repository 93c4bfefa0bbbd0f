"""`/help`: what can be typed here."""

from talaria.commands.command import Command, Errand
from talaria.commands.finding import by_category, matching
from talaria.core.errors import NotFound


async def run(errand: Errand) -> None:
    """Show every command by category, or one of them."""
    if not errand.words:
        errand.place.show(_overview(errand.commands))
        return
    found = matching(errand.words, errand.commands)
    if not found:
        raise NotFound(f"There is no command `{errand.words}`. `/help` lists them.")
    errand.place.show("\n\n".join(map(_described, found)))


def _overview(commands: tuple[Command, ...]) -> str:
    usages = {f"/{command.name}": command.usage for command in commands}
    parts = ["`/keys`, or `?` on an empty line, shows the keyboard shortcuts."] if "/keys" in usages else []
    for category, entries in by_category(commands).items():
        lines = [f"- `{usages[name]}` {text}" for name, text in entries.items()]
        parts.append(f"**{category}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _described(command: Command) -> str:
    also = f"\n\nAlso: {', '.join(f'`/{alias}`' for alias in command.aliases)}" if command.aliases else ""
    return f"`{command.usage}` {command.help}{also}"


COMMAND = Command(
    name="help",
    category="Program",
    help="Show what can be typed here.",
    hint="[command]",
    aliases=("h", "?"),
    run=run,
    reads=True,
)
