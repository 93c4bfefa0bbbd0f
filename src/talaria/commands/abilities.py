"""Slash commands `/memory`, `/sandbox` and `/tools`: what the agent remembers and can do."""

from collections.abc import Sequence

from talaria.commands.arguments import split_arguments
from talaria.commands.command import Command, CommandContext
from talaria.commands.model import get_preferences, set_preferences
from talaria.commands.session_lookup import get_session_scope
from talaria.contracts.memory import MEMORY_KINDS
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound, Refused
from talaria.sessions.preferences import choose_sandbox
from talaria.sessions.transcript_export import format_code_block

EDIT, FIND, FORGET = "edit", "find", "forget"
CONSOLIDATE, UNDO = "consolidate", "undo"
_FORCE = "--force"
_REPLACE = ("Replace the entries", "Cancel")
_NO_SANDBOX, _AS_SET = "off", "default"
_SANDBOX_CHOICES = {
    "bubblewrap": "in bubblewrap, with this machine's files read-only",
    "podman": "in a podman container",
    "docker": "in a docker container",
    "ssh": "on another host",
    _NO_SANDBOX: "without a sandbox, with the same access as you",
    _AS_SET: "as in the settings",
}


async def run_memory(context: CommandContext) -> None:
    """Show or search the memory that applies in this chat, or change an entry of it.

    The memory of a group is the owner's; guests have one of their own in their private chats.
    """
    viewer = (await context.active_session.store.read(lambda tx: get_session_scope(tx, context))).viewer
    if viewer is None or (viewer.audience and not context.author.owner):
        context.surface.show("Only the owner can see and change what is remembered here.")
        return
    try:
        await _use_memory(context, viewer)
    except Refused as error:
        if context.author.owner:
            raise
        context.surface.show(str(error))  # it is about their own memory


async def _use_memory(context: CommandContext, viewer: Viewer) -> None:
    action, _, part = context.arguments.partition(" ")
    if action in (CONSOLIDATE, UNDO):
        await _rewrite_memory(context, viewer, action, part.split())
    elif not action:
        context.surface.show(context.application.knowledge.memory.show(viewer) or "Nothing is remembered yet.")
    elif action == FORGET and part.strip():
        entry = context.application.knowledge.memory.forget(part.strip(), viewer)
        context.surface.show(
            f"Forgotten: {entry}\n\nNew conversations won't know it. Conversations that are already open may still do."
        )
    elif action == FIND and part.strip():
        found = await context.application.knowledge.memory.find(part.strip(), viewer)
        context.surface.show("\n".join(f"- `{one.id}` {one.text}" for one in found) or "No memory entry fits.")
    elif action == EDIT and part.strip().partition(" ")[2]:
        name, _, text = part.strip().partition(" ")
        memory = context.application.knowledge.memory
        book = next((one for one in memory.books(viewer) if any(name == entry.id for entry in one.entries)), None)
        if book is None:
            raise Refused(f"There is no memory entry `{name}`. `/memory find TEXT` shows ids.")
        memory.edit(viewer, book.kind, name, text)
        context.surface.show(f"Changed: {text}")
    else:
        raise Refused(
            "Use `/memory` to show everything, `/memory find TEXT` to search it, `/memory edit ID TEXT` to change an "
            "entry, `/memory forget TEXT` to remove the entry that contains TEXT, `/memory consolidate` to shorten a "
            "full memory, or `/memory undo` to undo that."
        )


async def _rewrite_memory(context: CommandContext, viewer: Viewer, action: str, options: Sequence[str]) -> None:
    """Consolidate one kind of memory after a question, or undo that."""
    kind = next((one for one in MEMORY_KINDS if one in options), None)
    force = action == UNDO and _FORCE in options
    if len(options) != (kind is not None) + force:
        raise Refused("Use `/memory consolidate [memory|user]` or `/memory undo [memory|user] [--force]`.")
    consolidator = context.application.knowledge.consolidator(viewer, context.active_session.chat)
    if action == UNDO:
        undone = await consolidator.undo(kind, force=force)
        context.surface.show(f"Undone. {undone.summary}\n\n{format_code_block(undone.diff, 'diff')}")
        return
    change = await consolidator.propose(kind)
    shown = f"{change.summary}\n\n{format_code_block(change.diff, 'diff')}"
    question = "Replace the entries? `/memory undo` undoes it."
    if context.screen is not None:
        context.surface.show(shown)
    else:  # other surfaces may show it only after the answer
        question = f"{shown}\n\n{question}"
    if await context.surface.choose(question, _REPLACE) != 0:
        context.surface.show("Nothing was changed.")
        return
    await consolidator.apply(change)
    context.surface.show(f"Consolidated. {change.summary} New conversations use it; `/memory undo` undoes it.")


async def offer_memory_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the completions of `/memory`."""
    return [
        (f"{FIND} ", "search"),
        (f"{EDIT} ", "change an entry"),
        (f"{FORGET} ", "remove an entry"),
        (CONSOLIDATE, "shorten a full memory"),
        (UNDO, "undo the last consolidation"),
    ]


MEMORY = Command(
    name="memory",
    category="Abilities",
    help="Show or search what the agent remembers, change, forget or consolidate it.",
    hint="[find text|edit id text|forget text|consolidate|undo]",
    run=run_memory,
    offers=offer_memory_choices,
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
        found.append((f"{_get_opposite_switch(on=group.enabled)} {group.name}", f"{len(group.tools)} tools"))
        found += [(f"{_get_opposite_switch(on=tool.enabled)} {tool.name}", group.name) for tool in group.tools]
    return found


def _get_opposite_switch(*, on: bool) -> str:
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


async def run_sandbox(context: CommandContext) -> None:
    """Show the sandbox of this conversation's commands, or choose one."""
    settings, surface = context.application.settings_admin.current, context.active_session.request.surface.source
    if not context.arguments:
        choice = (await get_preferences(context)).sandbox
        kind = choose_sandbox(settings, surface, choice)
        why = "chosen for this conversation" if choice else "as in the settings"
        where = f"in a {kind} sandbox" if kind else "without a sandbox"
        names = ", ".join(f"`{name}`" for name in _SANDBOX_CHOICES)
        context.surface.show(f"Commands run {where} ({why}). `/sandbox NAME` chooses one of {names}.")
        return
    if context.arguments not in _SANDBOX_CHOICES:
        raise NotFound(f"There is no sandbox `{context.arguments}`. Available: {', '.join(_SANDBOX_CHOICES)}.")
    await set_preferences(context, sandbox="" if context.arguments == _AS_SET else context.arguments)
    context.surface.show(f"From the next message, commands run {_SANDBOX_CHOICES[context.arguments]}.")


async def offer_sandbox_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every kind of sandbox as a completion."""
    del context
    return list(_SANDBOX_CHOICES.items())


SANDBOX = Command(
    name="sandbox",
    category="Abilities",
    help="Show the sandbox of commands, or choose one for this conversation.",
    hint="[kind|off|default]",
    during_turn="refused",
    who="owner",
    run=run_sandbox,
    offers=offer_sandbox_choices,
)
