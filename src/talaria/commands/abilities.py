"""Slash commands `/memory`, `/skills` and `/tools`: what the agent remembers and can do."""

from collections.abc import Sequence

from talaria.commands.arguments import split_arguments
from talaria.commands.command import Command, CommandContext
from talaria.commands.session_lookup import get_session_scope
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import Refused

FORGET = "forget"


async def run_memory(context: CommandContext) -> None:
    """Show the memory that applies in this chat, or remove an entry from it."""
    action, _, part = context.arguments.partition(" ")
    viewer = (await context.active_session.store.read(lambda tx: get_session_scope(tx, context))).viewer
    if viewer is None:
        raise Refused("You can't see what is remembered here: it belongs to the owner.")
    if not action:
        context.surface.show(context.application.knowledge.memory.show(viewer) or "Nothing is remembered yet.")
    elif action == FORGET and part.strip():
        entry = context.application.knowledge.memory.forget(part.strip(), viewer)
        context.surface.show(
            f"Forgotten: {entry}\n\nNew conversations won't know it. Conversations that are already open may still do."
        )
    else:
        raise Refused(
            "Use `/memory` to show everything, or `/memory forget TEXT` to remove the entry that contains TEXT."
        )


async def offer_memory_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the completions of `/memory`."""
    return [(f"{FORGET} ", "remove an entry")]


MEMORY = Command(
    name="memory",
    category="Abilities",
    help="Show what the agent remembers, or make it forget an entry.",
    hint="[forget text]",
    who="owner",
    run=run_memory,
    offers=offer_memory_choices,
)


async def run_skills(context: CommandContext) -> None:
    """List the skills, or show one."""
    if context.arguments:
        context.surface.show(context.application.knowledge.skill(context.arguments))
        return
    lines = [
        f"- `{skill.name}`{'' if skill.is_enabled else ' (off)'}: {skill.about}"
        for skill in context.application.knowledge.skills()
    ]
    context.surface.show("\n".join(lines) or "There are no skills yet. Ask the agent to write one down.")


async def offer_skills_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every skill as a completion."""
    return [(skill.name, skill.about) for skill in context.application.knowledge.skills()]


SKILLS = Command(
    name="skills",
    category="Abilities",
    help="List the agent's skills, or show one.",
    hint="[name]",
    who="owner",
    run=run_skills,
    reads=True,
    offers=offer_skills_choices,
)


SWITCHES = {"on": True, "off": False}


async def run_tools(context: CommandContext) -> None:
    """List the tools, or switch some and reopen the session with them."""
    switch, *names = split_arguments(context.arguments) or [""]
    if not switch:
        groups = map(_describe_toolset, context.application.knowledge.toolsets())
        context.surface.show(
            "\n".join([*groups, "", "`/tools on NAME` and `/tools off NAME` switch a toolset or a tool."])
        )
        return
    if switch not in SWITCHES or not names:
        raise Refused("Use `/tools on NAME` or `/tools off NAME`. `/tools` lists the names.")
    changed, notes = context.application.settings_admin.switch_tools(names, on=SWITCHES[switch])
    if changed:
        await context.active_session.renew()
        notes = [*notes, *_explain_surface_toolsets(context)]
    quoted_names = ", ".join(f"`{name}`" for name in changed or names)
    summary = f"{switch.capitalize()} {'now' if changed else 'already'}: {quoted_names}."
    context.surface.show(" ".join([summary, *notes]))


def _explain_surface_toolsets(context: CommandContext) -> list[str]:
    """Return a notice if this surface has its own list of toolsets, which the switches do not affect."""
    key = f"surfaces.{context.surface.name}.toolsets"
    is_set = any(one.key == key and one.value for one in context.application.settings_admin.list())
    return [f"But `{key}` is set, and it decides which toolsets are on here."] if is_set else []


def _describe_toolset(group: ToolsetState) -> str:
    tools = ", ".join(f"`{tool.name}`" if tool.enabled else f"`{tool.name}` (off)" for tool in group.tools)
    return f"- **{group.name}**: {tools}" if group.enabled else f"- **{group.name}** (off): {tools}"


async def offer_tools_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every toolset and tool, with the argument that switches it."""
    found = []
    for group in context.application.knowledge.toolsets():
        found.append((f"{_opposite_switch(on=group.enabled)} {group.name}", f"{len(group.tools)} tools"))
        found += [(f"{_opposite_switch(on=tool.enabled)} {tool.name}", group.name) for tool in group.tools]
    return found


def _opposite_switch(*, on: bool) -> str:
    return "off" if on else "on"


TOOLS = Command(
    name="tools",
    category="Abilities",
    help="List the agent's tools, or switch them on and off.",
    hint="[on|off name …]",
    during_turn="refused",
    who="owner",
    run=run_tools,
    offers=offer_tools_choices,
)
