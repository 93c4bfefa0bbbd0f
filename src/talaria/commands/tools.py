"""`/tools`: what the agent can do, switched on and off."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.words import split_words
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import Refused

SWITCHES = {"on": True, "off": False}


async def run(errand: Errand) -> None:
    """List the tools, or switch some and open the conversation anew with them."""
    switch, *names = split_words(errand.words) or [""]
    if not switch:
        groups = map(_described, errand.house.knowledge.toolsets())
        errand.place.show("\n".join([*groups, "", "`/tools on NAME` and `/tools off NAME` switch a group or a tool."]))
        return
    if switch not in SWITCHES or not names:
        raise Refused("Type `/tools on NAME` or `/tools off NAME`; `/tools` lists the names.")
    changed, remarks = errand.house.settings_rack.switch_tools(names, on=SWITCHES[switch])
    if changed:
        await errand.seat.renew()
        remarks = [*remarks, *_own_list(errand)]
    listed = ", ".join(f"`{name}`" for name in changed or names)
    errand.place.show(" ".join([f"{switch.capitalize()} {'now' if changed else 'already'}: {listed}.", *remarks]))


def _own_list(errand: Errand) -> list[str]:
    """Return a sentence where this place has a list of groups of its own, which the switches do not touch."""
    key = f"surfaces.{errand.place.name}.toolsets"
    wins = any(one.key == key and one.value for one in errand.house.settings_rack.list())
    return [f"But `{key}` is set, and decides about groups in this place."] if wins else []


def _described(group: ToolsetState) -> str:
    tools = ", ".join(f"`{tool.name}`" if tool.enabled else f"`{tool.name}` (off)" for tool in group.tools)
    return f"- **{group.name}**: {tools}" if group.enabled else f"- **{group.name}** (off): {tools}"


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every group and tool that can be switched, with the word that does it."""
    found = []
    for group in errand.house.knowledge.toolsets():
        found.append((f"{_other(on=group.enabled)} {group.name}", f"{len(group.tools)} tools"))
        found += [(f"{_other(on=tool.enabled)} {tool.name}", group.name) for tool in group.tools]
    return found


def _other(*, on: bool) -> str:
    return "off" if on else "on"


COMMAND = Command(
    name="tools",
    category="Abilities",
    help="Show what the agent can do, or switch tools on and off.",
    hint="[on|off name …]",
    during_turn="refused",
    who="owner",
    run=run,
    offers=offers,
)
