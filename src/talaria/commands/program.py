"""Slash commands `/config`, `/help`, `/keys`, `/quit`, `/restart`, `/sethome` and `/start`."""

import difflib
from collections.abc import Sequence

from msgspec import structs

from talaria.commands.arguments import escape_markdown, require_terminal
from talaria.commands.command import Command, CommandContext, find_commands, group_help_by_category
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import platform_label
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.sessions.transcript_export import format_inline_code
from talaria.settings.schema import Setting

_GREETING = "Hi{name}! Just write what you need. `/help` lists the commands, `/new` starts a new conversation."
_OWNER_GREETING = " `/sethome` makes this the chat for reports and reminders."
DEFAULT = "default"


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


async def run_config(context: CommandContext) -> None:
    """Show changed settings, show one key or table, or set or reset a key."""
    key, _, value = context.arguments.partition(" ")
    admin = context.application.settings_admin
    if key.isupper():
        raise Refused(f"Secrets can't be shown or typed here. Use `talaria config set {key} -` in a shell.")
    if value.strip() == DEFAULT:
        context.surface.show(admin.reset(key))
    elif value:
        context.surface.show(admin.change(key, value.strip()))
    elif key:
        context.surface.show("\n".join(map(_describe_setting, _find_settings(admin.list(), key))))
    else:
        changed = [f"- {_format_value(one)}" for one in admin.list() if not one.is_default]
        usage = "`/config KEY` shows a setting, `/config KEY VALUE` changes it, `/config KEY default` resets it."
        context.surface.show("\n".join([*(changed or ["All settings are at their defaults."]), "", usage]))


def _find_settings(settings: Sequence[Setting], key: str) -> list[Setting]:
    """Return the setting with this key, or all settings of this table; raises `NotFound`."""
    exact = [one for one in settings if one.key == key]
    found = exact or [one for one in settings if one.key.startswith(f"{key}.")]
    if not found:
        near = difflib.get_close_matches(key, [one.key for one in settings], n=1)
        raise NotFound(f"There is no setting `{key}`." + (f" Did you mean `{near[0]}`?" if near else ""))
    return found


def _describe_setting(setting: Setting) -> str:
    return f"- {_format_value(setting)}: {setting.about}"


def _format_value(setting: Setting) -> str:
    return f"`{setting.key}` = {format_inline_code(setting.value)}" if setting.value else f"`{setting.key}` is empty"


async def offer_config_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every key as a completion."""
    return [(setting.key, setting.about) for setting in context.application.settings_admin.list()]


CONFIG = Command(
    name="config",
    category="Program",
    help="Show the changed settings, or show or change one.",
    hint="[key [value|default]]",
    who="owner",
    run=run_config,
    offers=offer_config_choices,
)
