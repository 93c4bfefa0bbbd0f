"""`/subgoal`: criteria that a goal has to meet as well, added on the way."""

from functools import partial

from talaria.commands.command import Command, Errand
from talaria.commands.goal import goal_of
from talaria.core.errors import Refused
from talaria.goals.goal import GoalState


async def run(errand: Errand) -> None:
    """Add a criterion, list them, or remove one by its number; whoever it is reads why that cannot be."""
    try:
        await _do(errand)
    except Refused as refusal:
        errand.place.show(str(refusal))


async def _do(errand: Errand) -> None:
    goal = goal_of(errand)
    first, _, rest = errand.words.partition(" ")
    if not errand.words:
        state = await goal.load()
        errand.place.show(_listed(state) if state else goal.status_line())
        return
    if first.lower() == "remove" and (not rest.strip() or rest.strip().isdecimal()):
        errand.place.show(_listed(await goal.remove_subgoal(_number(rest))))
    else:
        is_setter = partial(errand.seat.chat.is_same_person, errand.sender)
        errand.place.show(_listed(await goal.add_subgoal(errand.words, is_setter=is_setter)))
    errand.seat.chat.conversation.follow()


def _number(text: str) -> int:
    if not text.strip():
        raise Refused("Which one? `/subgoal remove <number>`; `/subgoal` lists them.")
    return int(text)


def _listed(state: GoalState) -> str:
    if not state.subgoals:
        return "The goal has no criteria of its own. `/subgoal <text>` adds one."
    return "\n".join(f"{number}. {text}" for number, text in enumerate(state.subgoals, 1))


COMMAND = Command(
    name="subgoal",
    category="Session",
    help="Add a criterion that the goal has to meet, list them, or remove one.",
    hint="[text | remove <number>]",
    run=run,
)
