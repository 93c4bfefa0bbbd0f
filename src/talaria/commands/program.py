"""Slash commands `/keys`, `/quit`, `/restart`, `/sethome` and `/start`."""

from msgspec import structs

from talaria.commands.arguments import escape_markdown, require_terminal
from talaria.commands.command import Command, CommandContext
from talaria.core.errors import Refused
from talaria.core.formatting import platform_label
from talaria.sessions.chat_directory import HomeChat, write_home


async def run_keys(context: CommandContext) -> None:
    """Show the keyboard shortcuts."""
    context.place.show(require_terminal(context).keys)


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
    if context.service is None or context.place.address is None:
        raise Refused("Only a gateway can be restarted, and only from a chat.")
    seconds = await context.service.restart(context.active_session.session_id, context.place.address)
    context.place.show(
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
    address = context.place.address
    if address is None:
        raise Refused("I can't reach you here: this isn't a chat.")
    # In a group each person may have their own session: deliver to that of the person who set the home chat.
    home_address = address if address.chat_type == "private" else structs.replace(address, user_id=context.author.id)
    home = HomeChat(home_address, context.words)
    await context.active_session.store.write(lambda tx: write_home(tx, home))
    label = f", *{escape_markdown(context.words)}*," if context.words else ""
    context.place.show(
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


_GREETING = "Hi{name}! Just write what you need. `/help` lists the commands, `/new` starts a new conversation."


async def run_start(context: CommandContext) -> None:
    """Greet the user and explain what to do; starts nothing."""
    name = f", {context.author.name}" if context.author.name else ""
    context.place.show(_GREETING.format(name=name))


START = Command(
    name="start",
    category="Program",
    help="Say hello and show what you can do here.",
    where="chat",
    run=run_start,
    reads=True,
)
