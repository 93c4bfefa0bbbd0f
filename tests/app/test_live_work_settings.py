"""Live settings of turns, delegated tasks, jobs and commands take effect in a running process."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.app.program import Program
from tests.app.serving_process import Process, process, send_message
from tests.cli.stored_sessions import converse
from tests.cli.stored_sessions import text_message as a_message

from talaria.app.jobs import open_heartbeat, open_scheduler
from talaria.contracts.jobs import JobRequest, JobRequester
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.errors import TalariaError
from talaria.core.events import TurnOutOfBudget
from talaria.runtime.open_session import OpenSession
from talaria.schedule.job_store import HEARTBEAT, JobSpec, read_job
from talaria.schedule.recurrence import Once, write_schedule
from talaria.testing.model_server import Ask, Received, Say

PRICED = "[models.scripted]\ninput_price = 1000.0\n"
TASKS: dict[str, Any] = {"tasks": [{"goal": "CHILD one"}, {"goal": "CHILD two"}]}
BEATS = '[heartbeat]\nevery = "10m"\ntarget = "nowhere"\n'


async def result_of(here: Process, chat: OpenSession, tool: str, arguments: dict[str, Any]) -> str:
    """Return the result of a tool call in the next turn, as the model reads it."""
    here.server.script(Say(calls=[Ask(tool, arguments)]))
    await send_message(chat, "go")
    return str(here.server.received[-1].json["messages"][-1]["content"])


async def _allowed(here: Process, chat: OpenSession) -> object:
    return "Not allowed" in await result_of(here, chat, "terminal", {"command": "make all"})


async def _turn_seconds(here: Process, chat: OpenSession) -> object:
    here.server.script(Say(calls=[Ask("terminal", {"command": "sleep 1.1"})]))
    return isinstance(await send_message(chat, "go"), TurnOutOfBudget)


async def _delegated(here: Process, chat: OpenSession) -> object:
    return (await result_of(here, chat, "delegate_task", TASKS)).partition(" tasks can be delegated")[0]


async def _models_of_children(here: Process, chat: OpenSession) -> object:
    here.server.received.clear()
    await result_of(here, chat, "delegate_task", TASKS)
    return {str(one.json["model"]) for one in here.server.received if "CHILD" in one.question}


async def _children_at_once(here: Process, chat: OpenSession) -> object:
    most, now, changed = 0, 0, asyncio.Condition()

    async def answer(received: Received) -> Say:
        nonlocal most, now
        if "CHILD" not in received.question:
            return Say("ok")
        async with changed:
            now += 1
            most = max(most, now)
            changed.notify_all()
            await changed.wait_for(lambda: most >= min(2, here.application.settings.delegation.at_once))
            now -= 1
        return Say("done")

    here.server.answering(answer)
    await result_of(here, chat, "delegate_task", TASKS)
    return most


async def _seconds_of_children(here: Process, chat: OpenSession) -> object:
    def answer(received: Received) -> Say:
        is_child = "CHILD" in received.question and received.json["messages"][-1]["role"] == "user"
        return Say(calls=[Ask("terminal", {"command": "sleep 1.1"})]) if is_child else Say("done")

    here.server.answering(answer)
    return await result_of(here, chat, "delegate_task", {"tasks": TASKS["tasks"][:1]})


async def _job_with_prompt(here: Process, chat: OpenSession) -> object:
    schedules, scheduler = here.application.schedules, open_scheduler(here.application, here.jobs)
    if not await schedules.find("", JobRequester()):
        await schedules.add(
            JobRequest(when="every 1h", prompt="Look.", name="Look", deliver=("nowhere",)), JobRequester()
        )
    await schedules.run("Look", JobRequester())
    await scheduler.run_pending_turns()
    return (await schedules.history("Look", JobRequester()))[0].state


async def _overdue_job(here: Process, chat: OpenSession) -> object:
    """Return the state of a run that was due two hours ago."""
    schedules, scheduler = here.application.schedules, open_scheduler(here.application, here.jobs)
    name = f"Tea {len(await schedules.find('', JobRequester()))}"
    view = await schedules.add(JobRequest(when="in 1h", script="true", name=name, deliver=("nowhere",)), JobRequester())
    due = datetime.now(UTC) - timedelta(hours=2)

    def date_back(tx: Transaction) -> None:
        job = next(job for job in tx.jobs.find() if job.id == view.id)
        tx.jobs.put(structs.replace(job, next_at=due, schedule=write_schedule(Once(due))))

    await here.application.store.write(date_back)
    await scheduler.run_pending_turns()
    return (await schedules.history(name, JobRequester()))[0].state


EFFECTS: dict[str, tuple[str, str, Callable[[Process, OpenSession], Awaitable[object]]]] = {
    "approval.allowed": ('["make"]', '[approval]\nmode = "allow-list"\n', _allowed),
    "agent.max_turn_seconds": ("1", "", _turn_seconds),
    "delegation.tasks": ("1", "", _delegated),
    "delegation.model": ('"other:scripted-too"', "", _models_of_children),
    "delegation.at_once": ("1", "", _children_at_once),
    "delegation.max_seconds": ("1", "", _seconds_of_children),
    "delegation.max_dollars": ("0.000001", PRICED, _delegated),
    "schedule.catch_up_hours": ("1.0", "", _overdue_job),
    "schedule.job_dollars": ("0.000001", PRICED + '[model]\nprovider = "mine"\nname = "scripted"\n', _job_with_prompt),
}


@pytest.mark.parametrize("key", sorted(EFFECTS))
async def test_live_setting_applies_to_the_next_turn_of_an_open_session(tmp_path: Path, key: str) -> None:
    value, settings, look = EFFECTS[key]
    async with process(tmp_path, settings) as here:
        chat = await here.open(attended=False)
        before = await look(here, chat)
        await here.write(key, value)
        assert await look(here, chat) != before


async def test_changed_approval_timeout_applies_to_an_open_session(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        chat = await here.open()
        await here.write("approval.timeout_seconds", "1")
        assert "Not allowed" in await result_of(here, chat, "terminal", {"command": "sudo -n true"})


async def test_changed_script_timeout_applies_to_the_next_run(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        schedules, scheduler = here.application.schedules, open_scheduler(here.application, here.jobs)
        await here.write("schedule.script_seconds", "1")
        await schedules.add(JobRequest(when="every 1h", script="sleep 600", name="Wait"), JobRequester())
        await schedules.run("Wait", JobRequester())
        await scheduler.run_pending_turns()
        assert [run.state for run in await schedules.history("Wait", JobRequester())] == ["failed"]


async def find_heartbeat(here: Process) -> JobSpec | None:
    found = await here.application.store.read(lambda tx: [job for job in tx.jobs.find() if job.id == HEARTBEAT])
    return read_job(found[0]).plan if found else None


@pytest.mark.parametrize(
    ("key", "value", "settings"),
    [
        ("heartbeat.every", '"10m"', BEATS.replace('every = "10m"\n', "")),
        ("heartbeat.hours", '"0:00-0:00"', BEATS),
        ("heartbeat.target", '"nowhere"', BEATS.replace('"nowhere"', '"loopback:nobody"')),
    ],
)
async def test_changed_heartbeat_setting_applies_to_the_next_heartbeat(
    tmp_path: Path, key: str, value: str, settings: str
) -> None:
    later = datetime.now(UTC) + timedelta(hours=6)
    hours = f"{later:%H:%M}-{later + timedelta(minutes=1):%H:%M}" if key == "heartbeat.hours" else "0:00-0:00"
    async with process(tmp_path, f'{settings}hours = "{hours}"\n[cli]\ntime_zone = "UTC"\n') as here:
        (here.application.profile.folder / "HEARTBEAT.md").write_text("- [ ] Look.\n")
        heart = open_heartbeat(here.application)
        with suppress(TalariaError):  # nowhere to report
            await heart.look()
        assert await find_heartbeat(here) is None
        await here.write(key, value)
        await heart.look()
        assert await find_heartbeat(here) is not None


async def test_changed_heartbeat_model_is_used_by_the_next_heartbeat(tmp_path: Path) -> None:
    async with process(tmp_path, BEATS + 'hours = "0:00-0:00"\n') as here:
        (here.application.profile.folder / "HEARTBEAT.md").write_text("- [ ] Look.\n")
        heart = open_heartbeat(here.application)
        await here.write("heartbeat.model", '"mine:spare"')
        await heart.look()
        plan = await find_heartbeat(here)
    assert plan is not None
    assert plan.model == "mine:spare"


@pytest.mark.parametrize(
    ("key", "value", "arguments", "shown"),
    [
        ("cli.color", "always", ("doctor", "--offline"), "\x1b["),
        ("doctor.min_free_megabytes", "999999999", ("doctor", "--offline"), "Free some space"),
        ("sessions.prune_after_days", "7", ("sessions", "prune", "--dry-run"), "30 days ago"),
    ],
)
def test_changed_setting_applies_to_the_next_command(
    tmp_path: Path, key: str, value: str, arguments: tuple[str, ...], shown: str
) -> None:
    program = Program(tmp_path)
    month_ago = datetime.now(UTC) - timedelta(days=30)
    converse(program, NewSession(source="cli"), a_message("An old talk", at=month_ago), at=month_ago)
    assert shown not in program.run(*arguments).out
    assert program.run("config", "set", key, value).code == 0
    assert shown in program.run(*arguments).out


SHOWN_AT_WORK = {
    *EFFECTS,
    *("approval.timeout_seconds", "schedule.script_seconds"),
    *("heartbeat.every", "heartbeat.hours", "heartbeat.target", "heartbeat.model"),
    *("cli.color", "doctor.min_free_megabytes", "sessions.prune_after_days"),
}
