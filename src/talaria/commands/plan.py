"""Slash command `/plan`: let the agent only read until its plan is approved."""

from collections.abc import Sequence

from talaria.commands.command import Command, CommandContext
from talaria.core.messages import Text
from talaria.sessions.plan_mode import PLAN_INSTRUCTIONS, read_plan_mode, start_planning, stop_planning

_ACTIONS = {"approve": "carry out the plan", "off": "leave plan mode", "status": "show whether it is on"}
_APPROVED = "The plan is approved. Carry it out now."


async def run_plan(context: CommandContext) -> None:
    """Start planning, with a task or with the next message; or approve the plan, or leave plan mode."""
    store, session_id, task = context.active_session.store, context.active_session.session_id, context.arguments
    if task in _ACTIONS:
        plan = await store.read(lambda tx: read_plan_mode(tx, session_id))
        if not plan.is_on:
            context.surface.show("Plan mode is off. `/plan` switches it on, `/plan TASK` starts with a task.")
        elif task == "status":
            context.surface.show("Plan mode is on: I only read until you approve a plan with `/plan approve`.")
        else:
            await store.write(lambda tx: stop_planning(tx, session_id))
            if task == "approve":
                await context.active_session.put(Text(_APPROVED), sender=context.sender)
            context.surface.show("Plan approved." if task == "approve" else "Plan mode is off.")
        return
    await store.write(lambda tx: start_planning(tx, session_id, announced=bool(task)))
    if task:
        await context.active_session.put(Text(f"{PLAN_INSTRUCTIONS}\n\n{task}"), sender=context.sender)
        return
    context.surface.show(
        "Plan mode is on: I only read until you approve a plan. I'll ask when I'm ready to start; `/plan approve` "
        "approves at any time, `/plan off` leaves plan mode."
    )


async def offer_plan_actions(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the actions."""
    return list(_ACTIONS.items())


PLAN = Command(
    name="plan",
    category="Turn",
    help="Plan first: the agent only reads until you approve its plan.",
    hint="[task|approve|off|status]",
    who="owner",
    run=run_plan,
    offers=offer_plan_actions,
)
