"""`/approve`: allow what a turn asks for."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.core.errors import NotFound

SCOPES = {
    "once": "this time",
    "session": "for the whole conversation",
    "always": "in every conversation",
}


async def run(errand: Errand) -> None:
    """Allow the oldest thing that waits for it."""
    scope = errand.words.lower() or "once"
    if scope not in SCOPES:
        raise NotFound(f"`{scope}` is no scope: choose one of {', '.join(SCOPES)}.")
    questions = errand.seat.questions
    for asked in questions.approvals[:1]:
        questions.answer(asked.id, scope)
        errand.place.show(f"Allowed {SCOPES[scope]}: `{asked.tool}`.{still_waiting(errand)}")
        return
    errand.place.show("Nothing waits for approval.")


def still_waiting(errand: Errand) -> str:
    """Return a sentence about what else waits for approval, if anything does."""
    rest = len(errand.seat.questions.approvals)
    return f" {rest} more to answer." if rest else ""


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return how far it may go."""
    return list(SCOPES.items())


COMMAND = Command(
    name="approve",
    category="Turn",
    help="Allow what the running turn asks for.",
    hint="[once|session|always]",
    who="owner",
    run=run,
    offers=offers,
)
