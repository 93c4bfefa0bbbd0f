"""`/cron`: have something done later, or again and again."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain, shortened
from talaria.contracts.schedules import Asker, JobView, JobWish, RunView
from talaria.core.errors import Refused
from talaria.sessions.homes import gateway_alive

_WORDS = {
    "list": "show what is scheduled",
    "add": "such as `add every monday 9:00 water the plants`",
    "show": "all about one",
    "edit": "such as `edit plants when every friday 9:00`",
    "pause": "let it rest",
    "resume": "let it go on",
    "run": "let it run now",
    "history": "what its runs have said",
    "remove": "remove it",
}
_NONE = "Nothing is scheduled. `/cron add every monday 9:00 water the plants` schedules something."
_NO_GATEWAY = "No gateway is running, and without one nothing is started: `talaria gateway start`."
_LONGEST = 80
_SHOWN_OUTPUT = 500


async def run(errand: Errand) -> None:
    """Do with a job what the first word says."""
    action, _, rest = errand.words.strip().partition(" ")
    act = _ACTIONS.get(action.lower() or "list")
    if act is None:
        raise Refused(f"`/cron {action}` is not known; there are {', '.join(_WORDS)}.")
    await act(errand, rest.strip())


async def _list(errand: Errand, words: str) -> None:
    jobs = await errand.house.schedules.find("", await _asker(errand))
    served = not jobs or await errand.seat.store.read(gateway_alive)
    text = "\n".join(map(_line, jobs)) or _NONE
    errand.place.show(text if served else f"{text}\n\n{_NO_GATEWAY}")


async def _add(errand: Errand, words: str) -> None:
    if not words:
        raise Refused("What, and when? `/cron add every monday 9:00 water the plants`.")
    made = await errand.house.schedules.add(JobWish(prompt=words), await _asker(errand))
    errand.place.show("\n\n".join(["It is scheduled.", _line(made), *made.remarks]))


async def _show_one(errand: Errand, words: str) -> None:
    (job,) = await errand.house.schedules.find(_named(words), await _asker(errand))
    lines = [f"- **{name}** {plain(value)}" for name, value in job.facts.items()]
    errand.place.show("\n".join([f"**{plain(job.name)}** `{job.id}`", "", *lines]))


async def _edit(errand: Errand, words: str) -> None:
    name, _, rest = words.partition(" ")
    field, _, value = rest.strip().partition(" ")
    make = _FIELDS.get(field)
    if make is None or not value.strip():
        raise Refused(f"`/cron edit JOB FIELD VALUE`, where FIELD is one of {', '.join(_FIELDS)}.")
    job = await errand.house.schedules.change(_named(name), make(value.strip()), await _asker(errand))
    errand.place.show(f"It is changed.\n\n{_line(job)}")


async def _pause(errand: Errand, words: str) -> None:
    job = await errand.house.schedules.change(_named(words), JobWish(paused=True), await _asker(errand))
    errand.place.show(f"{plain(job.name)} rests; `/cron resume {job.id}` lets it go on.")


async def _resume(errand: Errand, words: str) -> None:
    job = await errand.house.schedules.change(_named(words), JobWish(paused=False), await _asker(errand))
    errand.place.show(_line(job))


async def _run(errand: Errand, words: str) -> None:
    job = await errand.house.schedules.run(_named(words), await _asker(errand))
    begun = f"{plain(job.name)} is begun; `/cron history {job.id}` shows what comes of it."
    errand.place.show("\n\n".join([begun, *job.remarks]))


async def _history(errand: Errand, words: str) -> None:
    runs = await errand.house.schedules.history(_named(words), await _asker(errand))
    errand.place.show("\n".join(map(_past, runs)) or "It has not run yet.")


async def _remove(errand: Errand, words: str) -> None:
    job = await errand.house.schedules.remove(_named(words), await _asker(errand))
    errand.place.show(f"{plain(job.name)} is removed.")


async def _asker(errand: Errand) -> Asker:
    """Return the owner of the agent at this place: before others only what was scheduled there is shown."""
    session_id = errand.seat.session_id
    session = await errand.seat.store.read(lambda tx: tx.sessions.get(session_id))
    return Asker(audience=session.audience if session else "", session_id=session_id, address=errand.place.address)


def _named(words: str) -> str:
    if not words:
        raise Refused("Which one? `/cron` lists them.")
    return words


def _line(job: JobView) -> str:
    what = plain(shortened(" ".join((job.prompt or job.script).split()), _LONGEST))
    when = f"next {job.next_told}" if job.next_told else job.state
    return f"- `{job.id}` **{plain(job.name)}** {plain(job.schedule)}, {when}" + (
        f": {what}" if what != job.name else ""
    )


def _past(run: RunView) -> str:
    said = plain(shortened(" ".join(run.output.split()), _SHOWN_OUTPUT))
    return f"- {run.due_told} **{run.state}**" + (f": {said}" if said else "")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return what can be done."""
    return tuple(_WORDS.items())


_FIELDS: Mapping[str, Callable[[str], JobWish]] = {
    "when": lambda value: JobWish(when=value),
    "prompt": lambda value: JobWish(prompt=value),
    "name": lambda value: JobWish(name=value),
    "deliver": lambda value: JobWish(deliver=tuple(value.split(","))),
    "model": lambda value: JobWish(model=value),
    "zone": lambda value: JobWish(zone=value),
}
_ACTIONS: Mapping[str, Callable[[Errand, str], Awaitable[None]]] = {
    "list": _list,
    "add": _add,
    "show": _show_one,
    "edit": _edit,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "history": _history,
    "remove": _remove,
}

COMMAND = Command(
    name="cron",
    category="Session",
    help="Have something done later, or again and again.",
    hint="[list | add WHEN WHAT | show | edit | pause | resume | run | history | remove]",
    who="owner",
    run=run,
    offers=offers,
)
