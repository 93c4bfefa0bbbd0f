"""`/goal`: keep the agent at work until something is reached."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused
from talaria.goals.goal import Judged
from talaria.goals.prompts import described, standing
from talaria.goals.standing import GoalManager

_WORDS = {
    "status": "show the goal and how it stands",
    "pause": "stop going on with it",
    "resume": "go on, with the counters at zero",
    "clear": "drop it",
    "history": "show what was thought of each turn",
}


def goal_of(errand: Errand) -> GoalManager:
    """Return the goal of the conversation that is open."""
    return GoalManager(errand.seat.session_id, store=errand.seat.store, allowance=errand.house.goal_budgets)


async def run(errand: Errand) -> None:
    """Set a goal, or do with it what a single word says; whoever it is reads why that cannot be."""
    try:
        await _do(errand)
    except Refused as refusal:
        errand.place.show(str(refusal))


async def _do(errand: Errand) -> None:
    match errand.words.strip().lower():
        case "" | "status":
            await _show(errand)
        case "pause" | "stop":
            await _pause(errand)
        case "resume":
            await _resume(errand)
        case "clear":
            await _clear(errand)
        case "history":
            await _show_history(errand)
        case _:
            await _set(errand)


async def _set(errand: Errand) -> None:
    state = await goal_of(errand).set(errand.words, vouched=errand.author.owner, sender=errand.sender)
    errand.place.show(f"{standing(state)}\n\n`/goal pause` stops it, `/goal clear` drops it.")
    _go_on(errand)


async def _show(errand: Errand) -> None:
    state = await goal_of(errand).load()
    errand.place.show(described(state) if state else standing(None))


async def _pause(errand: Errand) -> None:
    goal = goal_of(errand)
    paused = await goal.pause()
    errand.place.show(f"{goal.status_line()} `/goal resume` goes on." if paused else goal.status_line())
    errand.seat.chat.conversation.follow()


async def _resume(errand: Errand) -> None:
    errand.place.show(standing(await goal_of(errand).resume()))
    _go_on(errand)


async def _clear(errand: Errand) -> None:
    dropped = await goal_of(errand).clear()
    errand.place.show("The goal is dropped." if dropped else standing(None))
    errand.seat.chat.conversation.follow()


async def _show_history(errand: Errand) -> None:
    verdicts = await goal_of(errand).history()
    errand.place.show("\n".join(map(_line, verdicts)) or "No turn has been judged yet.")


def _go_on(errand: Errand) -> None:
    conversation = errand.seat.chat.conversation
    conversation.wake()
    conversation.follow()


def _line(judged: Judged) -> str:
    evidence = "" if judged.exit_code is None else f" (exit code {judged.exit_code})"
    return f"- {judged.at:%Y-%m-%d %H:%M} UTC **{judged.label}**{evidence}: {judged.reason}"


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the words that do something with a goal."""
    return tuple(_WORDS.items())


COMMAND = Command(
    name="goal",
    category="Session",
    help="Keep at work until a goal is reached; set it, show it, or stop and go on with it.",
    hint="[text | status | pause | resume | clear | history]",
    run=run,
    offers=offers,
)
