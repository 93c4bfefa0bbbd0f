"""The cron tool: create, change and run scheduled jobs."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.jobs import HOME, NOWHERE, ORIGIN, JobRequest, JobRequester, JobService, JobView, RunView
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import Ambiguous, NotFound, Refused, ToolFailed

_SHOWN_OUTPUT = 2_000
_SHOWN_PROMPT = 120
_OWN = {ORIGIN, HOME, NOWHERE}


class CronArguments(Struct, frozen=True):
    """An operation on a job."""

    action: Literal["add", "list", "edit", "pause", "resume", "remove", "run", "history"]
    job: Annotated[str, Meta(description="Id or name")] = ""
    when: Annotated[
        str,
        Meta(
            description="Recurring: `every 2h`, `every monday 9:00`, cron `0 9 * * 1-5`. Once: `in 30m` (or `30m`), "
            "`tomorrow 9:00`, ISO time"
        ),
    ] = ""
    prompt: Annotated[str, Meta(description="Self-contained: a run doesn't see this chat")] = ""
    name: str = ""
    script: Annotated[
        str, Meta(description="Shell command; its output is added to the prompt, or sent as is without one")
    ] = ""
    deliver: Annotated[
        list[str], Meta(description="`origin` (here, default), `home`, `telegram:Family`, `nowhere`")
    ] = []
    skills: list[str] = []
    model: str = ""
    folder: str = ""
    times: Annotated[int, Meta(description="Maximum number of runs")] = 0
    zone: str = ""


class Cron:
    """Jobs of the session's owner; ``makes`` is false in sessions started by a job."""

    name = "cron"
    description = (
        "Schedule jobs: the agent runs a prompt later or regularly and reports the result. `[SILENT]` replies "
        "are not sent."
    )
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = CronArguments

    def __init__(self, service: Callable[[], JobService], *, makes: bool = True) -> None:
        self._service = service
        self._makes = makes

    def proposed_action(self, arguments: CronArguments) -> ProposedAction:
        """Describe the action: a script is a command, and reports to other chats are messages."""
        if arguments.script:
            return ProposedAction("command", arguments.script)
        others = [one for one in arguments.deliver if one.strip() not in _OWN]
        what = f"{arguments.action} {arguments.job or arguments.name} {arguments.when}".strip()
        if others:
            return ProposedAction("send", f"{what}: {arguments.prompt}", ", ".join(others))
        return ProposedAction("other", what)

    async def run(self, arguments: CronArguments, call: Call) -> ToolOutput:
        """Carry out the operation and return the result."""
        if arguments.script and any(one.strip() not in _OWN for one in arguments.deliver):
            raise ToolFailed("Set the script first, then the report target with `edit`: each needs its own approval.")
        try:
            return ToolOutput(await self._run_action(arguments, call))
        except (Refused, NotFound, Ambiguous) as error:
            raise ToolFailed(str(error)) from error

    async def _run_action(self, arguments: CronArguments, call: Call) -> str:
        service, requester = self._service(), _make_requester(arguments, call)
        match arguments.action:
            case "list":
                jobs = await service.find(arguments.job, requester)
                return "\n".join(map(_format_job, jobs)) or "There are no jobs."
            case "add":
                if not self._makes:
                    raise ToolFailed("A scheduled job can't create jobs. Tell the person what to schedule.")
                return f"Added: {_describe_job(await service.add(_make_request(arguments), requester))}"
            case "edit":
                job = await service.change(_require_job(arguments), _make_request(arguments), requester)
                return f"Changed: {_describe_job(job)}"
            case "pause" | "resume":
                request = JobRequest(paused=arguments.action == "pause")
                return _format_job(await service.change(_require_job(arguments), request, requester))
            case "remove":
                return f"Removed: {(await service.remove(_require_job(arguments), requester)).name}"
            case "run":
                return f"Started: {(await service.run(_require_job(arguments), requester)).name}"
            case "history":
                return _format_runs(await service.history(_require_job(arguments), requester))


def _make_requester(arguments: CronArguments, call: Call) -> JobRequester:
    key = repr((call.context.turn_id or call.session_id, call.id, arguments))
    return JobRequester(owner=call.owner, audience=call.audience, session_id=call.session_id, key=key)


def _require_job(arguments: CronArguments) -> str:
    if not arguments.job.strip():
        raise ToolFailed("Give the `job`; `list` shows all jobs.")
    return arguments.job


def _make_request(arguments: CronArguments) -> JobRequest:
    return JobRequest(
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


def _describe_job(job: JobView) -> str:
    return "\n".join((_format_job(job), *job.remarks))


def _format_job(job: JobView) -> str:
    what = " ".join((job.prompt or job.script).split())
    what = what if len(what) <= _SHOWN_PROMPT else f"{what[:_SHOWN_PROMPT]}…"
    when = f"next {job.next_told}" if job.next_told else job.state
    left = "" if job.times_left is None else f", {job.times_left} runs left"
    return f"{job.id} “{job.name}” {job.schedule}, {when}{left}, to {', '.join(job.deliver)}: {what}"


def _format_runs(runs: Sequence[RunView]) -> str:
    lines = [f"{run.due_told} {run.state}: {run.output[:_SHOWN_OUTPUT]}".rstrip(": ") for run in runs]
    return "\n".join(lines) or "It hasn't run yet."
