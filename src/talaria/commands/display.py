"""Slash commands `/footer`, `/theme`, `/verbose` and `/voice`: how replies are shown and spoken."""

from collections.abc import Sequence
from typing import cast

from msgspec import structs

from talaria.commands.arguments import require_terminal
from talaria.commands.command import Command, CommandContext, Progress
from talaria.core.addresses import WEB
from talaria.core.errors import NotFound
from talaria.sessions.chat_directory import read_voice_choice, write_voice_choice

FOOTER_STATES = {"on": "with model, context, folder and cost", "off": "replies only"}


async def run_footer(context: CommandContext) -> None:
    """Switch the footer on or off; without an argument, toggle it."""
    state = context.arguments.lower() or ("off" if context.surface.display.footer else "on")
    if state not in FOOTER_STATES:
        raise NotFound(f"Use `on` or `off`, not `{state}`.")
    context.surface.change_display(structs.replace(context.surface.display, footer=state == "on"))
    context.surface.show(f"The status line below replies is {state} here.")


async def offer_footer_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return on and off."""
    return list(FOOTER_STATES.items())


FOOTER = Command(
    name="footer",
    category="Display",
    help="Show a status line below each reply: model, context, folder and cost.",
    hint="[on|off]",
    who="owner",
    run=run_footer,
    offers=offer_footer_choices,
)


AUTO_THEME = "auto"
THEME_HELP = {
    AUTO_THEME: "match the terminal",
    "dark": "for a dark background",
    "light": "for a light background",
    "mono": "without colours",
}


async def run_theme(context: CommandContext) -> None:
    """Choose and save a theme, or show the current one."""
    screen = require_terminal(context)
    if not context.arguments:
        context.surface.show(
            f"The theme is `{screen.theme}`. Available themes: {', '.join(f'`{name}`' for name in THEME_HELP)}."
        )
        return
    if context.arguments != AUTO_THEME:
        screen.change_theme(context.arguments)
    context.application.settings_admin.change("cli.theme", context.arguments)
    when = "From the next start, the theme is" if context.arguments == AUTO_THEME else "The theme is now"
    context.surface.show(f"{when} `{context.arguments}`.")


async def offer_theme_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the themes."""
    return list(THEME_HELP.items())


THEME = Command(
    name="theme",
    category="Display",
    help="Choose the terminal's colours.",
    hint="[auto|dark|light|mono]",
    where="terminal",
    run=run_theme,
    offers=offer_theme_choices,
)


PROGRESS_LEVELS = {
    "off": "no tool calls",
    "new": "the first call of each tool",
    "all": "every tool call",
    "verbose": "every tool call, with arguments and output",
}


async def run_verbose(context: CommandContext) -> None:
    """Set the level of detail; without an argument, the next of off, new, all, verbose."""
    names = list(PROGRESS_LEVELS)
    level = context.arguments.lower() or names[(names.index(context.surface.display.progress) + 1) % len(names)]
    if level not in PROGRESS_LEVELS:
        raise NotFound(f"Unknown level `{level}`. Choose one of {', '.join(PROGRESS_LEVELS)}.")
    context.surface.change_display(structs.replace(context.surface.display, progress=cast("Progress", level)))
    context.surface.show(f"Now showing {PROGRESS_LEVELS[level]} (`{level}`).")


async def offer_verbose_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the levels."""
    return list(PROGRESS_LEVELS.items())


VERBOSE = Command(
    name="verbose",
    category="Display",
    help="Set how much tool activity is shown here; without an argument, cycle through the levels.",
    hint="[off|new|all|verbose]",
    who="owner",
    run=run_verbose,
    offers=offer_verbose_choices,
)


VOICE_STATES = {
    "on": "speak every reply in this chat",
    "off": "speak none",
    "default": "as the settings say",
}


async def run_voice(context: CommandContext) -> None:
    """Switch spoken replies in this chat on or off; without an argument, show the state."""
    address, voice = context.surface.address, context.application.settings_admin.current.voice
    if address is None or address.platform == WEB:
        context.surface.show("Spoken replies are for chat networks. Here, ask for a recording.")
        return
    state = context.arguments.lower()
    if state and state not in VOICE_STATES:
        context.surface.show(f"Use `on`, `off` or `default`, not `{state}`.")
        return
    if state == "on" and not voice.speaker:
        context.surface.show("Nothing can speak yet. My owner needs to set `voice.speaker`.")
        return
    store = context.active_session.store
    if state:
        chosen = {"on": True, "off": False}.get(state)
        await store.write(lambda tx: write_voice_choice(tx, address, chosen))
    now = await store.read(lambda tx: read_voice_choice(tx, address))
    if now is None:
        context.surface.show(f"Spoken replies: {voice.speak} (`voice.speak`). `/voice on` changes that here.")
    else:
        context.surface.show("Replies in this chat are also spoken." if now else "Replies in this chat aren't spoken.")


async def offer_voice_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the states."""
    return list(VOICE_STATES.items())


VOICE = Command(
    name="voice",
    category="Display",
    help="Turn spoken replies in this chat on or off.",
    hint="[on|off|default]",
    where="chat",
    run=run_voice,
    offers=offer_voice_choices,
)
