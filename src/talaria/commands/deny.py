"""`/deny`: forbid what a turn asks for."""

from talaria.commands.approve import still_waiting
from talaria.commands.command import Command, Errand


async def run(errand: Errand) -> None:
    """Forbid the oldest thing that waits for approval; the agent is told why."""
    questions = errand.seat.questions
    for asked in questions.approvals[:1]:
        # A reason must not be taken for one of the words that allow.
        questions.answer(asked.id, f"{errand.words.rstrip('.')}." if errand.words else "no")
        errand.place.show(f"Forbidden: `{asked.tool}`.{still_waiting(errand)}")
        return
    errand.place.show("Nothing waits for approval.")


COMMAND = Command(
    name="deny",
    category="Turn",
    help="Forbid what the running turn asks for, with a reason for the agent.",
    hint="[reason]",
    who="owner",
    run=run,
)
