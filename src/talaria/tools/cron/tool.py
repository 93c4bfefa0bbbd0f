"""The tool that has things done at times that nobody has to remember."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.schedules import HOME, NOWHERE, ORIGIN, Asker, JobDesk, JobView, JobWish, RunView
from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import Ambiguous, NotFound, Refused, ToolFailed

_SHOWN_OUTPUT = 2_000
_SHOWN_PROMPT = 120
_OWN = {ORIGIN, HOME, NOWHERE}


class CronArguments(Struct, frozen=True):
    """What to do with which job."""

    action: Literal["add", "list", "edit", "pause", "resume", "remove", "run", "history"]
    job: Annotated[str, Meta(description="Id or name")] = ""
    when: Annotated[
        str,
        Meta(
            description="Again and again: `every 2h`, `every monday 9:00`, cron `0 9 * * 1-5`."
            " Once: `in 30m` (`30m` too), `tomorrow 9:00`, ISO time"
        ),
    ] = ""
    prompt: Annotated[str, Meta(description="Self-contained: a run knows nothing of this chat")] = ""
    name: str = ""
    script: Annotated[str, Meta(description="Shell line; its output joins the prompt, or without one is sent")] = ""
    deliver: Annotated[
        list[str], Meta(description="`origin` (here, default), `home`, `telegram:Family`, `nowhere`")
    ] = []
    skills: list[str] = []
    model: str = ""
    folder: str = ""
    times: Annotated[int, Meta(description="Runs at most")] = 0
    zone: str = ""


class Cron:
    """Jobs of whoever the conversation belongs to; ``makes`` is not for conversations that a job has begun."""

    name = "cron"
    description = (
        "Schedule jobs: the agent runs a prompt later or regularly and reports. `[SILENT]` replies are not sent."
    )
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = CronArguments

    def __init__(self, desk: Callable[[], JobDesk], *, makes: bool = True) -> None:
        self._desk = desk
        self._makes = makes

    def deed(self, arguments: CronArguments) -> Deed:
        """Say what it would do: a script is a command, and reports to other chats are messages there."""
        if arguments.script:
            return Deed("command", arguments.script)
        others = [one for one in arguments.deliver if one.strip() not in _OWN]
        what = f"{arguments.action} {arguments.job or arguments.name} {arguments.when}".strip()
        if others:
            return Deed("send", f"{what}: {arguments.prompt}", ", ".join(others))
        return Deed("other", what)

    async def run(self, arguments: CronArguments, call: Call) -> ToolOutput:
        """Do it, and say what is the case now."""
        if arguments.script and any(one.strip() not in _OWN for one in arguments.deliver):
            raise ToolFailed("Give the script first, and where to report with `edit` then: each is asked about.")
        try:
            return ToolOutput(await self._done(arguments, call))
        except (Refused, NotFound, Ambiguous) as error:
            raise ToolFailed(str(error)) from error

    async def _done(self, arguments: CronArguments, call: Call) -> str:
        desk, asker = self._desk(), _asker(arguments, call)
        match arguments.action:
            case "list":
                jobs = await desk.find(arguments.job, asker)
                return "\n".join(map(_line, jobs)) or "There are no jobs."
            case "add":
                if not self._makes:
                    raise ToolFailed("A scheduled job makes no other jobs: tell the person what should be scheduled.")
                return f"Added: {_told(await desk.add(_wish(arguments), asker))}"
            case "edit":
                return f"Changed: {_told(await desk.change(_named(arguments), _wish(arguments), asker))}"
            case "pause" | "resume":
                wish = JobWish(paused=arguments.action == "pause")
                return _line(await desk.change(_named(arguments), wish, asker))
            case "remove":
                return f"Removed: {(await desk.remove(_named(arguments), asker)).name}"
            case "run":
                return f"Begun: {(await desk.run(_named(arguments), asker)).name}"
            case "history":
                return _past(await desk.history(_named(arguments), asker))


def _asker(arguments: CronArguments, call: Call) -> Asker:
    key = repr((call.context.turn_id or call.session_id, call.id, arguments))
    return Asker(owner=call.owner, audience=call.audience, session_id=call.session_id, key=key)


def _named(arguments: CronArguments) -> str:
    if not arguments.job.strip():
        raise ToolFailed("Name the `job`; `list` shows which there are.")
    return arguments.job


def _wish(arguments: CronArguments) -> JobWish:
    return JobWish(
        when=arguments.when or None,
        prompt=arguments.prompt or None,
        name=arguments.name or None,
        script=arguments.script or None,
        deliver=tuple(arguments.deliver) or None,
        skills=tuple(arguments.skills) or None,
        model=arguments.model or None,
        folder=arguments.folder or None,
        times=arguments.times or None,
        zone=arguments.zone or None,
    )


def _told(job: JobView) -> str:
    return "\n".join((_line(job), *job.remarks))


def _line(job: JobView) -> str:
    what = " ".join((job.prompt or job.script).split())
    what = what if len(what) <= _SHOWN_PROMPT else f"{what[:_SHOWN_PROMPT]}…"
    when = f"next {job.next_told}" if job.next_told else job.state
    left = "" if job.times_left is None else f", {job.times_left} runs left"
    return f"{job.id} “{job.name}” {job.schedule}, {when}{left}, to {', '.join(job.deliver)}: {what}"


def _past(runs: Sequence[RunView]) -> str:
    lines = [f"{run.due_told} {run.state}: {run.output[:_SHOWN_OUTPUT]}".rstrip(": ") for run in runs]
    return "\n".join(lines) or "It has not run yet."
