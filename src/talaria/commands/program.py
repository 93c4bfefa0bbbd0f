"""Slash commands `/help`, `/keys`, `/quit`, `/restart`, `/sethome` and `/start`."""

from msgspec import structs

from talaria.commands.arguments import escape_markdown, require_terminal
from talaria.commands.command import Command, CommandContext, find_commands, group_help_by_category
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import platform_label
from talaria.sessions.chat_directory import HomeChat, write_home

_GREETING = "Hi{name}! Just write what you need. `/help` lists the commands, `/new` starts a new conversation."
_OWNER_GREETING = " `/sethome` makes this the chat for reports and reminders."


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


async def run_keys(context: CommandContext) -> None:
    """Show the keyboard shortcuts."""
    context.surface.show(require_terminal(context).keys)


KEYS = Command(name="keys", category="Program", help="Show the keyboard shortcuts.", where="terminal", run=run_keys)


async def run_quit(context: CommandContext) -> None:
    """Exit; the session can be resumed."""
    require_terminal(context).leave()


QUIT = Command(
    name="quit",
    category="Program",
    help="Leave; you can resume the conversation later.",
    aliases=("exit", "q"),
    where="terminal",
    run=run_quit,
)


async def run_restart(context: CommandContext) -> None:
    """Restart the gateway after running turns have ended; it reports here when it is back."""
    if context.service is None or context.surface.address is None:
        raise Refused("Only a gateway can be restarted, and only from a chat.")
    seconds = await context.service.restart(context.active_session.session_id, context.surface.address)
    context.surface.show(
        f"Restarting the gateway. Running turns have {seconds:.0f} s to finish; unfinished ones resume afterwards."
    )


RESTART = Command(
    name="restart",
    category="Program",
    help="Restart the gateway; it reports here when it's back.",
    where="chat",
    who="owner",
    run=run_restart,
)


async def run_sethome(context: CommandContext) -> None:
    """Store the address of this chat as the home chat of its network."""
    address = context.surface.home_address
    if address is None:
        raise Refused("I can't reach you here: this isn't a chat.")
    # In a group each person may have their own session: deliver to that of the person who set the home chat.
    home_address = address if address.chat_type == "private" else structs.replace(address, user_id=context.author.id)
    home = HomeChat(home_address, context.arguments)
    await context.active_session.store.write(lambda tx: write_home(tx, home))
    label = f", *{escape_markdown(context.arguments)}*," if context.arguments else ""
    context.surface.show(
        f"This chat{label} is now my home chat on {platform_label(address.platform)}. Reports go here, and so does"
        f" `/handoff {address.platform}` from the terminal."
    )


SETHOME = Command(
    name="sethome",
    category="Session",
    help="Make this chat the home chat for reports and handoffs.",
    hint="[name]",
    where="chat",
    who="owner",
    run=run_sethome,
)


async def run_start(context: CommandContext) -> None:
    """Greet the user and explain what to do; starts nothing."""
    name = f", {escape_markdown(context.author.name)}" if context.author.name else ""
    context.surface.show(_GREETING.format(name=name) + (_OWNER_GREETING if context.author.owner else ""))


START = Command(
    name="start",
    category="Program",
    help="Say hello and show what you can do here.",
    where="chat",
    run=run_start,
    reads=True,
)
