"""Slash commands `/background` and `/browser`: background tasks and the browser of the session."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

from talaria.commands.arguments import escape_markdown, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.background_processes import BackgroundProcess, list_processes
from talaria.contracts.browser import BrowserStatus
from talaria.contracts.jobs import JobRequest, JobRequester, JobView, RunView
from talaria.contracts.store import Transaction
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import SessionId
from talaria.runtime.delegation.task_store import Delegation, ask_to_stop, list_background
from talaria.runtime.workers import is_gateway_alive

_LONGEST_QUOTE = 60
_STOP = "stop"
_BROWSER_ACTIONS = {
    "takeover": "use the browser yourself, for example to log in",
    "handback": "let the agent continue",
    "close": "close it; its profile stays until the conversation ends",
}


async def run_background(context: CommandContext) -> None:
    """Start a background task with the given text, list running tasks, or stop one."""
    first, _, rest = context.arguments.partition(" ")
    if not context.arguments:
        await _show_tasks(context)
    elif first == _STOP and rest and " " not in rest.strip():
        await _stop_task(context, rest.strip("` "))
    else:
        await _start_task(context)


async def _start_task(context: CommandContext) -> None:
    delegator = context.active_session.chat.delegator
    if delegator is None:
        raise Refused("Background tasks aren't available here.")
    handle = await delegator.run_in_background(context.arguments)
    context.surface.show(f"Running in the background as `{handle}`. I'll post the result here.")


async def _show_tasks(context: CommandContext) -> None:
    here, now = context.active_session.session_id, datetime.now(UTC)
    delegated, processes = await context.active_session.store.read(lambda tx: _find_running(tx, here))
    lines = [
        *(_describe_delegation(one, now) for one in delegated),
        *(_describe_process(one, now) for one in processes),
    ]
    if not lines:
        context.surface.show("No background tasks are running. `/background <text>` starts one.")
        return
    context.surface.show("Running in the background:\n\n" + "\n".join(f"- {line}" for line in lines))


async def _stop_task(context: CommandContext, name: str) -> None:
    here, store = context.active_session.session_id, context.active_session.store
    _, processes = await store.read(lambda tx: _find_running(tx, here))
    found = [one for one in processes if one.id == name]
    if found:
        await context.application.processes.kill(found[0], "person")
    else:
        await store.write(lambda tx: ask_to_stop(tx, here, name))
    context.surface.show(f"Stopped `{name}`.")


def _find_running(tx: Transaction, here: SessionId) -> tuple[list[Delegation], list[BackgroundProcess]]:
    processes = [one for one in list_processes(tx, here) if one.is_alive]
    return [one for one in list_background(tx, here) if not one.stopped], processes


def _describe_delegation(one: Delegation, now: datetime) -> str:
    goals = [child.task.goal for child in one.children]
    finished = sum(child.state != "open" for child in one.children)
    progress = f", {finished} of {pluralize(len(goals), 'task')} done" if len(goals) > 1 else ""
    where = next((f", in `{child.session_id}`" for child in one.children if child.session_id), "")
    goal = escape_markdown(truncate(goals[0], _LONGEST_QUOTE))
    return f"`{one.handle}`: {goal} (started {format_age(one.began, now)}{progress}{where})"


def _describe_process(one: BackgroundProcess, now: datetime) -> str:
    command = escape_markdown(truncate(one.command, _LONGEST_QUOTE))
    return f"`{one.id}`: {command} (a process, started {format_age(one.begun_at, now)})"


async def _offer_tasks(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the tasks and processes that can be stopped."""
    if not _STOP.startswith(context.arguments.partition(" ")[0]):
        return ()
    here = context.active_session.session_id
    delegated, processes = await context.active_session.store.read(lambda tx: _find_running(tx, here))
    tasks = [(f"{_STOP} {one.handle}", truncate(one.children[0].task.goal, _LONGEST_QUOTE)) for one in delegated]
    return [*tasks, *((f"{_STOP} {one.id}", truncate(one.command, _LONGEST_QUOTE)) for one in processes)]


BACKGROUND = Command(
    name="background",
    category="Session",
    help="Run a task in the background, or list and stop running ones.",
    hint="[text | stop ID]",
    run=run_background,
    offers=_offer_tasks,
)


async def run_browser(context: CommandContext) -> None:
    """Show the browser of the session, take it over, hand it back, or close it."""
    browsers, session_id = context.application.browsers, context.active_session.session_id
    found = browsers.find(session_id)
    match context.arguments.strip():
        case "" | "status":
            context.surface.show(_describe_browser(found, browsers.link(session_id)))
        case "takeover" | "take over":
            browsers.take_over(session_id)
            context.surface.show(
                f"You have the browser: {browsers.link(session_id)} (or its window). "
                "`/browser handback` lets the agent continue."
            )
        case "handback" | "hand back":
            if found is None:
                raise NotFound("This conversation has no browser.")
            browsers.hand_back(session_id)
            context.surface.show("The agent has the browser again.")
        case "close":
            is_closed = await browsers.close_browser(session_id)
            context.surface.show("Closed the browser." if is_closed else "The browser isn't running.")
        case other:
            raise Refused(
                f"`/browser {other}` isn't known. Use `status`, {', '.join(f'`{one}`' for one in _BROWSER_ACTIONS)}."
            )


def _describe_browser(found: BrowserStatus | None, link: str) -> str:
    if found is None or (not found.running and not found.attached):
        last = f" Its last page was {found.url}." if found is not None and found.url else ""
        return f"The browser of this conversation isn't running.{last}"
    kind = "Your own browser" if found.attached else "A visible browser" if found.visible else "A browser"
    age = format_age(datetime.fromtimestamp(found.used_at, UTC), datetime.now(UTC))
    lines = [
        f"{kind} at {found.url or 'an empty page'}, used {age}.",
        "You have it: `/browser handback` lets the agent continue." if found.with_person else f"Take over: {link}",
    ]
    if not found.sandboxed:
        lines.append("Chromium runs without its own sandbox, because it can't use it as root or in this container.")
    return "\n\n".join(lines)


async def _offer_browser_actions(_: CommandContext) -> list[tuple[str, str]]:
    return list(_BROWSER_ACTIONS.items())


BROWSER = Command(
    name="browser",
    category="Abilities",
    help="Show the agent's web browser, use it yourself, or close it.",
    hint="[takeover | handback | close]",
    run=run_browser,
    who="owner",
    offers=_offer_browser_actions,
)


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


async def _show_history(context: CommandContext, arguments: str) -> None:
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
    "history": _show_history,
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
