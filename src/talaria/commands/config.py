"""Slash command `/config`: show and change settings of the profile."""

import difflib
from collections.abc import Sequence

from talaria.commands.command import Command, CommandContext
from talaria.commands.views import Setting
from talaria.core.errors import NotFound, Refused
from talaria.sessions.transcript_export import format_inline_code

DEFAULT = "default"


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
