"""`/config`: the settings of the profile."""

import difflib
from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.house import Setting
from talaria.core.errors import NotFound, Refused
from talaria.sessions.transcripts import code

DEFAULT = "default"


async def run(errand: Errand) -> None:
    """Show what is changed, show one key or table, or set a key."""
    key, _, value = errand.words.partition(" ")
    rack = errand.house.settings_rack
    if key.isupper():
        raise Refused(f"Secrets are neither shown nor typed here: `talaria config set {key} -` stores one unseen.")
    if value.strip() == DEFAULT:
        errand.place.show(rack.reset(key))
    elif value:
        errand.place.show(rack.change(key, value.strip()))
    elif key:
        errand.place.show("\n".join(map(_described, _found(rack.list(), key))))
    else:
        changed = [f"- {_valued(one)}" for one in rack.list() if not one.is_default]
        end = "`/config KEY` shows a setting, `/config KEY VALUE` sets it, `/config KEY default` takes that back."
        errand.place.show("\n".join([*(changed or ["Every setting is as it comes."]), "", end]))


def _found(settings: Sequence[Setting], key: str) -> list[Setting]:
    """Return the setting of this key, or those of the table."""
    exact = [one for one in settings if one.key == key]
    found = exact or [one for one in settings if one.key.startswith(f"{key}.")]
    if not found:
        near = difflib.get_close_matches(key, [one.key for one in settings], n=1)
        raise NotFound(f"There is no setting `{key}`." + (f" Did you mean `{near[0]}`?" if near else ""))
    return found


def _described(setting: Setting) -> str:
    return f"- {_valued(setting)}: {setting.about}"


def _valued(setting: Setting) -> str:
    return f"`{setting.key}` = {code(setting.value)}" if setting.value else f"`{setting.key}` is empty"


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every key."""
    return [(setting.key, setting.about) for setting in errand.house.settings_rack.list()]


COMMAND = Command(
    name="config",
    category="Program",
    help="Show the settings that are changed, or show or set one.",
    hint="[key [value|default]]",
    who="owner",
    run=run,
    offers=offers,
)
