"""What the agent is told in a run, and what its words come to."""

from collections.abc import Sequence

from talaria.contracts.shell import Ran
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.schedule.plan import Run

SILENT = "[SILENT]"
CUT_OFF = "The script was cut off when the program ended: what it did is not known."
STOPPED = "It was stopped before there was an answer."
_MARKUP = " \t\r\n*_`>"


def surface(run: Run, places: Sequence[str]) -> str:
    """Return what the agent has to know of where it is."""
    there = f"Your reply is sent to {' and '.join(places)}" if places else "Your reply is kept in the job's history"
    return (
        f"The scheduled job “{run.name}” has begun this, and nobody is there to answer questions. {there}: write only"
        f" what is to be read there, or {SILENT} alone if there is nothing to tell."
    )


def question(run: Run, skills: Sequence[tuple[str, str]], ran: Ran | None) -> str:
    """Return what the agent is asked: skills, what a script has printed, and the prompt."""
    parts = [f"What you have learnt about {name}:\n\n{text}" for name, text in skills]
    if run.remark:
        parts.append(f"({run.remark})")
    if ran is not None:
        parts.append(f"A script has run for this, {_ended(ran)}. It printed:\n\n```\n{ran.output.rstrip()}\n```")
    elif run.plan.script:
        parts.append(f"({CUT_OFF})")
    return "\n\n".join([*parts, run.plan.prompt.strip()])


def outcome(end: TurnEnd) -> tuple[bool, str]:
    """Return whether a turn came to an answer, and its words."""
    match end:
        case TurnAnswered(text):
            return True, text
        case TurnFailed(text) | TurnOutOfBudget(text=text):
            return False, text
        case TurnStopped():
            return False, STOPPED


def of_script(ran: Ran) -> tuple[bool, str]:
    """Return the same for a script that is the whole job."""
    if ran.code == 0:
        return True, ran.output.strip()
    return False, f"The script came to {_ended(ran)}.\n\n```\n{ran.output.rstrip()}\n```"


def report(run: Run, text: str, *, done: bool) -> str:
    """Return what people read of it; empty where nothing is to be said."""
    if not done:
        return f"**{run.name}** failed: {text}"
    if not text.strip() or text.lstrip(_MARKUP).startswith(SILENT):
        return ""
    return f"*{run.remark}*\n\n{text}" if run.remark else text


def _ended(ran: Ran) -> str:
    return "no end in time and was stopped" if ran.code is None else f"exit code {ran.code}"
