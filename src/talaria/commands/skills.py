"""Slash command `/skills`, and a command for each skill."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from talaria.commands.arguments import split_arguments, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.skills import SKILL_USAGE, SkillAdmin, SkillAudit, SkillChange, SkillInfo, count_use
from talaria.core.errors import Refused
from talaria.core.messages import Text
from talaria.sessions.transcript_export import format_code_block

_HELP_LENGTH = 80
_MAX_LISTED = 30  # lines of one part of an audit
_MAX_DIFF = 2_500  # characters of a diff
_YES_NO = ("Yes", "No")
_ARGUMENTS = "$ARGUMENTS"
_USAGE = (
    "Use `/skills` to list them, `/skills NAME` to show one, or `/skills search`, `audit`, `install`, `update`, "
    "`remove`, `enable` or `disable`."
)


def format_audit(audit: SkillAudit) -> str:
    """Return an audit as Markdown."""
    size = sum(one.size for one in audit.files)
    parts = [f"{len(audit.files)} file{'' if len(audit.files) == 1 else 's'}, {size:,} bytes."]
    sections = (
        ("Warnings", audit.warnings),
        ("Scripts", tuple(f"`{one}`" for one in audit.scripts)),
        ("Command lines in its text", tuple(f"`{one}`" for one in audit.commands)),
        ("Addresses", tuple(f"`{one}`" for one in audit.addresses)),
        ("Tools", audit.tools),
        ("Needs", audit.requires),
    )
    for title, lines in sections:
        if lines:
            rest = [f"- … and {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
            parts.append("\n".join([f"**{title}**", "", *(f"- {line}" for line in lines[:_MAX_LISTED]), *rest]))
    if not (audit.scripts or audit.commands or audit.addresses or audit.warnings):
        parts.append("It has no scripts, and names no commands and no addresses.")
    return "\n\n".join(parts)


def describe_change(change: SkillChange) -> str:
    """Return what an installation or an update would do, as Markdown without the diff."""
    origin, previous = change.origin, change.previous
    pin = f" at `{origin.short_pin}`" if origin.pin else ""
    if previous is None:
        head = f"**{change.name}** from {origin.source}{pin}: {change.about}"
    elif previous.source != origin.source:
        head = f"**{change.name}** from {origin.source}{pin}, in place of the one from {previous.source}"
    elif previous.pin != origin.pin:
        head = f"**{change.name}**: `{previous.short_pin or 'no pin'}` → `{origin.short_pin or 'no pin'}`"
    else:
        head = f"**{change.name}** from {origin.source}{pin}"
    lost = ["Changes that were made here would be lost."] if change.overwrites else []
    return "\n\n".join([head, *lost, format_audit(change.audit)])


def build_skill_commands(skills: Sequence[SkillInfo], taken: Collection[str]) -> tuple[Command, ...]:
    """Return a command for each enabled skill, except for names that are taken."""
    commands = []
    for skill in skills:
        alias = skill.name.replace("-", "_")  # Telegram makes no links of names with hyphens
        if skill.is_enabled and skill.name not in taken:
            commands.append(
                Command(
                    name=skill.name,
                    category="Your own",
                    help=truncate(f"Skill: {skill.about}", _HELP_LENGTH),
                    hint="[request]",
                    aliases=(alias,) if alias != skill.name and alias not in taken else (),
                    who="owner",
                    run=partial(_use_skill, skill.name),
                )
            )
    return tuple(commands)


async def _use_skill(name: str, context: CommandContext) -> None:
    """Send the instructions of a skill and the request to the agent."""
    text = await asyncio.to_thread(context.application.knowledge.skills.instructions, name)
    request = context.arguments
    if _ARGUMENTS in text:
        text = text.replace(_ARGUMENTS, request)
    elif request:
        text = f"{text}\n\nThe request: {request}"
    await context.active_session.store.write(lambda tx: count_use(tx, name))
    message = f"Use the skill {name}. These are its instructions:\n\n{text}"
    await context.active_session.put(Text(message), sender=context.sender)


async def run_skills(context: CommandContext) -> None:
    """List the skills, show one, or manage them."""
    action, _, rest = context.arguments.partition(" ")
    if not action:
        await _list_skills(context)
    elif action in _ACTIONS:
        names = split_arguments(rest)
        if not names and action != "update":
            raise Refused(_USAGE)
        await _ACTIONS[action](context, context.application.knowledge.skills, names)
    elif rest:
        raise Refused(_USAGE)
    else:
        context.surface.show(await asyncio.to_thread(context.application.knowledge.skills.text, action))


async def _list_skills(context: CommandContext) -> None:
    usage = await context.active_session.store.read(SKILL_USAGE.items)
    skills = await asyncio.to_thread(context.application.knowledge.skills.list, usage)
    lines = [_format_skill(skill) for skill in skills]
    context.surface.show("\n".join(lines) or "There are no skills yet. Ask the agent to write one down.")


def _format_skill(skill: SkillInfo) -> str:
    state = "" if skill.is_enabled else " (off)"
    used = f" Used {skill.uses} time{'' if skill.uses == 1 else 's'}." if skill.uses else ""
    return f"- `{skill.name}`{state}: {skill.problem or skill.about}{used}"


async def _search(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    found = await asyncio.to_thread(skills.search, " ".join(names))
    context.surface.show("\n".join(map(_format_skill, found)) or "No skill contains that.")


async def _audit(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    for name in names:
        context.surface.show(f"**{name}**: {format_audit(await asyncio.to_thread(skills.audit, name))}")


async def _install(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    source, *chosen = names
    for change in await asyncio.to_thread(skills.fetch, source, chosen):
        await _confirm_change(context, skills, change, "Install and enable it?")


async def _update(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    listed = await asyncio.to_thread(skills.list)
    for name in names or [one.name for one in listed if one.origin is not None]:
        change = await asyncio.to_thread(skills.fetch_update, name)
        if change is None:
            context.surface.show(f"`{name}` is up to date.")
        else:
            await _confirm_change(context, skills, change, "Update it?")


async def _confirm_change(context: CommandContext, skills: SkillAdmin, change: SkillChange, question: str) -> None:
    diff = f"\n\n{format_code_block(truncate(change.diff, _MAX_DIFF))}" if change.diff else ""
    context.surface.show(describe_change(change) + diff)
    if await context.surface.choose(question, _YES_NO) != 0:
        context.surface.show(f"`{change.name}` is left as it was.")
        return
    await asyncio.to_thread(partial(skills.apply, change, enable=True))
    context.surface.show(f"`{change.name}` is installed. New conversations know it.")


async def _enable(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    for name in names:
        info = await asyncio.to_thread(skills.get, name)
        if info.origin is not None:
            context.surface.show(f"**{name}**: {format_audit(await asyncio.to_thread(skills.audit, name))}")
            if await context.surface.choose(f"Enable {name}?", _YES_NO) != 0:
                context.surface.show(f"`{name}` stays off.")
                continue
        effect = await asyncio.to_thread(partial(skills.switch, name, on=True))
        context.surface.show(f"`{name}` is on. {effect}")


async def _disable(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    for name in names:
        effect = await asyncio.to_thread(partial(skills.switch, name, on=False))
        context.surface.show(f"`{name}` is off. {effect}")


async def _remove(context: CommandContext, skills: SkillAdmin, names: Sequence[str]) -> None:
    for name in names:
        await asyncio.to_thread(skills.get, name)
        if await context.surface.choose(f"Remove the skill {name}?", _YES_NO) == 0:
            context.surface.show(await asyncio.to_thread(skills.remove, name))
        else:
            context.surface.show(f"`{name}` is left as it was.")


_ACTIONS: Mapping[str, Callable[[CommandContext, SkillAdmin, Sequence[str]], Awaitable[None]]] = {
    "search": _search,
    "audit": _audit,
    "install": _install,
    "update": _update,
    "remove": _remove,
    "enable": _enable,
    "disable": _disable,
}


async def offer_skills_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return every skill, and the actions with the skills they are for, as completions."""
    skills = {one.name: one for one in reversed(context.application.knowledge.skills.list())}
    shown = [(one.name, one.about or one.problem) for one in reversed(skills.values())]
    switches = [(f"{'disable' if one.is_enabled else 'enable'} {one.name}", one.about) for one in skills.values()]
    return [*shown, *reversed(switches), ("install ", "from a folder, a git address or a zip"), ("search ", "by words")]


SKILLS = Command(
    name="skills",
    category="Abilities",
    help="List, show, install and manage the agent's skills.",
    hint="[name | action …]",
    who="owner",
    run=run_skills,
    offers=offer_skills_choices,
)
