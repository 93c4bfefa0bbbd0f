"""Slash commands `/goal` and `/subgoal`: set a goal and control its progress."""

from collections.abc import Sequence
from functools import partial

from talaria.commands.command import Command, CommandContext
from talaria.core.errors import Refused
from talaria.goals.goal import GoalState, JudgedTurn
from talaria.goals.goal_manager import GoalManager
from talaria.goals.transitions import describe_goal, format_goal_status

_ACTION_HELP = {
    "status": "show the goal and its progress",
    "pause": "pause it",
    "resume": "resume it, with the counters at zero",
    "clear": "clear it",
    "history": "show the verdict on each turn",
}


def get_goal_manager(context: CommandContext) -> GoalManager:
    """Return the goal manager of the active session."""
    return GoalManager(
        context.active_session.session_id,
        store=context.active_session.store,
        allowance=context.application.goal_budgets,
    )


async def run_goal(context: CommandContext) -> None:
    """Set a goal, or run the action named by a single word; refusals are shown."""
    try:
        await _run_goal_action(context)
    except Refused as refusal:
        context.surface.show(str(refusal))


async def _run_goal_action(context: CommandContext) -> None:
    match context.arguments.strip().lower():
        case "" | "status":
            await _show(context)
        case "pause" | "stop":
            await _pause(context)
        case "resume":
            await _resume(context)
        case "clear":
            await _clear(context)
        case "history":
            await _show_history(context)
        case _:
            await _set(context)


async def _set(context: CommandContext) -> None:
    state = await get_goal_manager(context).set(context.arguments, vouched=context.author.owner, sender=context.sender)
    context.surface.show(f"{format_goal_status(state)}\n\n`/goal pause` pauses it, `/goal clear` removes it.")
    _wake_runner(context)


async def _show(context: CommandContext) -> None:
    state = await get_goal_manager(context).load()
    context.surface.show(describe_goal(state) if state else format_goal_status(None))


async def _pause(context: CommandContext) -> None:
    goal = get_goal_manager(context)
    paused = await goal.pause()
    context.surface.show(f"{goal.status_line()} `/goal resume` continues." if paused else goal.status_line())
    context.active_session.chat.conversation.follow()


async def _resume(context: CommandContext) -> None:
    context.surface.show(format_goal_status(await get_goal_manager(context).resume()))
    _wake_runner(context)


async def _clear(context: CommandContext) -> None:
    cleared = await get_goal_manager(context).clear()
    context.surface.show("Goal cleared." if cleared else format_goal_status(None))
    context.active_session.chat.conversation.follow()


async def _show_history(context: CommandContext) -> None:
    verdicts = await get_goal_manager(context).history()
    context.surface.show("\n".join(map(_format_verdict, verdicts)) or "No turn has been judged yet.")


def _wake_runner(context: CommandContext) -> None:
    conversation = context.active_session.chat.conversation
    conversation.wake()
    conversation.follow()


def _format_verdict(verdict: JudgedTurn) -> str:
    evidence = "" if verdict.exit_code is None else f" (exit code {verdict.exit_code})"
    return f"- {verdict.at:%Y-%m-%d %H:%M} UTC **{verdict.label}**{evidence}: {verdict.reason}"


async def offer_goal_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the actions on a goal as completions."""
    return tuple(_ACTION_HELP.items())


GOAL = Command(
    name="goal",
    category="Session",
    help="Work toward a goal until it's met; set, show, pause or resume it.",
    hint="[text | status | pause | resume | clear | history]",
    run=run_goal,
    offers=offer_goal_choices,
)


async def run_subgoal(context: CommandContext) -> None:
    """Add a criterion, list criteria, or remove one by number; refusals are shown."""
    try:
        await _run_subgoal_action(context)
    except Refused as refusal:
        context.surface.show(str(refusal))


async def _run_subgoal_action(context: CommandContext) -> None:
    goal = get_goal_manager(context)
    first, _, rest = context.arguments.partition(" ")
    if not context.arguments:
        state = await goal.load()
        context.surface.show(_list_subgoals(state) if state else goal.status_line())
        return
    if first.lower() == "remove" and (not rest.strip() or rest.strip().isdecimal()):
        context.surface.show(_list_subgoals(await goal.remove_subgoal(_parse_number(rest))))
    else:
        is_setter = partial(context.active_session.chat.is_same_person, context.sender)
        context.surface.show(_list_subgoals(await goal.add_subgoal(context.arguments, is_setter=is_setter)))
    context.active_session.chat.conversation.follow()


def _parse_number(text: str) -> int:
    if not text.strip():
        raise Refused("Which one? Use `/subgoal remove <number>`; `/subgoal` lists them.")
    return int(text)


def _list_subgoals(state: GoalState) -> str:
    if not state.subgoals:
        return "The goal has no extra criteria. `/subgoal <text>` adds one."
    return "\n".join(f"{number}. {text}" for number, text in enumerate(state.subgoals, 1))


SUBGOAL = Command(
    name="subgoal",
    category="Session",
    help="Add a criterion to the goal, list the criteria, or remove one.",
    hint="[text | remove <number>]",
    run=run_subgoal,
)
