"""Slash command `/cron`: schedule one-off and recurring jobs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from talaria.commands.arguments import escape_markdown, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.jobs import JobRequest, JobRequester, JobView, RunView
from talaria.core.errors import Refused
from talaria.runtime.workers import is_gateway_alive

_ACTION_HELP = {
    "list": "list the scheduled jobs",
    "add": "for example `add every monday 9:00 water the plants`",
    "show": "show one job in full",
    "edit": "for example `edit plants when every friday 9:00`",
    "pause": "pause a job",
    "resume": "resume a job",
    "run": "run a job now",
    "history": "show a job's latest runs",
    "remove": "remove a job",
}
_NO_JOBS = "Nothing is scheduled. `/cron add every monday 9:00 water the plants` adds a job."
_NO_GATEWAY = "No gateway is running, so jobs won't start. Run `talaria gateway start`."
_PROMPT_LIMIT = 80
_OUTPUT_LIMIT = 500


async def run_cron(context: CommandContext) -> None:
    """Run the action named by the first argument."""
    action, _, rest = context.arguments.strip().partition(" ")
    handler = _ACTIONS.get(action.lower() or "list")
    if handler is None:
        raise Refused(f"Unknown action `/cron {action}`. Use one of {', '.join(_ACTION_HELP)}.")
    await handler(context, rest.strip())


async def _list(context: CommandContext, arguments: str) -> None:
    jobs = await context.application.schedules.find("", await _build_asker(context))
    has_gateway = not jobs or await context.active_session.store.read(is_gateway_alive)
    text = "\n".join(map(_format_job, jobs)) or _NO_JOBS
    context.surface.show(text if has_gateway else f"{text}\n\n{_NO_GATEWAY}")


async def _add(context: CommandContext, arguments: str) -> None:
    if not arguments:
        raise Refused("Give a time and a task: `/cron add every monday 9:00 water the plants`.")
    made = await context.application.schedules.add(JobRequest(prompt=arguments), await _build_asker(context))
    context.surface.show("\n\n".join(["Scheduled.", _format_job(made), *made.remarks]))


async def _show(context: CommandContext, arguments: str) -> None:
    (job,) = await context.application.schedules.find(_require_name(arguments), await _build_asker(context))
    lines = [f"- **{name}** {escape_markdown(value)}" for name, value in job.facts.items()]
    context.surface.show("\n".join([f"**{escape_markdown(job.name)}** `{job.id}`", "", *lines]))


async def _edit(context: CommandContext, arguments: str) -> None:
    name, _, rest = arguments.partition(" ")
    field, _, value = rest.strip().partition(" ")
    build_change = _FIELDS.get(field)
    if build_change is None or not value.strip():
        raise Refused(f"Use `/cron edit JOB FIELD VALUE`, where FIELD is one of {', '.join(_FIELDS)}.")
    job = await context.application.schedules.change(
        _require_name(name), build_change(value.strip()), await _build_asker(context)
    )
    context.surface.show(f"Changed.\n\n{_format_job(job)}")


async def _pause(context: CommandContext, arguments: str) -> None:
    job = await context.application.schedules.change(
        _require_name(arguments), JobRequest(paused=True), await _build_asker(context)
    )
    context.surface.show(f"{escape_markdown(job.name)} is paused. `/cron resume {job.id}` resumes it.")


async def _resume(context: CommandContext, arguments: str) -> None:
    job = await context.application.schedules.change(
        _require_name(arguments), JobRequest(paused=False), await _build_asker(context)
    )
    context.surface.show(_format_job(job))


async def _run(context: CommandContext, arguments: str) -> None:
    job = await context.application.schedules.run(_require_name(arguments), await _build_asker(context))
    started = f"{escape_markdown(job.name)} has started. `/cron history {job.id}` will show the result."
    context.surface.show("\n\n".join([started, *job.remarks]))


async def _history(context: CommandContext, arguments: str) -> None:
    runs = await context.application.schedules.history(_require_name(arguments), await _build_asker(context))
    context.surface.show("\n".join(map(_format_run, runs)) or "It hasn't run yet.")


async def _remove(context: CommandContext, arguments: str) -> None:
    job = await context.application.schedules.remove(_require_name(arguments), await _build_asker(context))
    context.surface.show(f"Removed {escape_markdown(job.name)}.")


async def _build_asker(context: CommandContext) -> JobRequester:
    """Return the owner in this chat; where others can read, only jobs of this chat are visible."""
    session_id = context.active_session.session_id
    session = await context.active_session.store.read(lambda tx: tx.sessions.get(session_id))
    return JobRequester(
        audience=session.audience if session else "", session_id=session_id, address=context.surface.address
    )


def _require_name(arguments: str) -> str:
    if not arguments:
        raise Refused("Which job? `/cron` lists them.")
    return arguments


def _format_job(job: JobView) -> str:
    what = escape_markdown(truncate(" ".join((job.prompt or job.script).split()), _PROMPT_LIMIT))
    when = f"next {job.next_told}" if job.next_told else job.state
    return f"- `{job.id}` **{escape_markdown(job.name)}** {escape_markdown(job.schedule)}, {when}" + (
        f": {what}" if what != job.name else ""
    )


def _format_run(run: RunView) -> str:
    output = escape_markdown(truncate(" ".join(run.output.split()), _OUTPUT_LIMIT))
    return f"- {run.due_told} **{run.state}**" + (f": {output}" if output else "")


async def offer_cron_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the actions as completions."""
    return tuple(_ACTION_HELP.items())


_FIELDS: Mapping[str, Callable[[str], JobRequest]] = {
    "when": lambda value: JobRequest(when=value),
    "prompt": lambda value: JobRequest(prompt=value),
    "name": lambda value: JobRequest(name=value),
    "deliver": lambda value: JobRequest(deliver=tuple(value.split(","))),
    "model": lambda value: JobRequest(model=value),
    "zone": lambda value: JobRequest(zone=value),
}
_ACTIONS: Mapping[str, Callable[[CommandContext, str], Awaitable[None]]] = {
    "list": _list,
    "add": _add,
    "show": _show,
    "edit": _edit,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "history": _history,
    "remove": _remove,
}

CRON = Command(
    name="cron",
    category="Session",
    help="Schedule one-off and recurring jobs.",
    hint="[list | add WHEN WHAT | show | edit | pause | resume | run | history | remove]",
    who="owner",
    run=run_cron,
    offers=offer_cron_choices,
)
