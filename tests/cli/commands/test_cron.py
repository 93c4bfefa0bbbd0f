"""`talaria cron`: jobs from the command line, and runs without a gateway."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.app.program import Program
from tests.app.program_with_model import scripted_program, talk

from talaria.testing.model_server import Ask, ModelServer, Say, Tokens

NO_GATEWAY = "No gateway is running"
PRICED = "[models.scripted]\ninput_price = 1.0\noutput_price = 1000.0\noutput_limit = 1000\n"


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    return scripted_program(tmp_path, server, f'[cli]\ntime_zone = "Europe/Berlin"\n{PRICED}')


async def run_json(program: Program, *arguments: str) -> Any:
    done = await talk(program, "cron", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


async def test_a_job_is_added_listed_shown_changed_and_removed(program: Program) -> None:
    added = await talk(program, "cron", "add", "every monday 9:00", "Water the plants.", "--name", "Plants")
    assert "Plants: every Monday 9:00, next Mon " in added.out
    assert NO_GATEWAY in added.err
    assert "no home chat" in added.err
    listed = await talk(program, "cron", "list")
    assert "\tPlants\tevery Monday 9:00\tMon " in listed.out
    assert NO_GATEWAY in listed.err
    changed = await run_json(program, "edit", "plants", "--when", "0 9 * * 1-5", "--times", "3", "--zone", "UTC")
    assert (changed["schedule"], changed["zone"], changed["times_left"]) == ("every weekday 9:00", "UTC", 3)
    assert (await run_json(program, "pause", "plants"))["state"] == "paused"
    assert (await run_json(program, "resume", "plants"))["state"] == "waiting"
    shown = await talk(program, "cron", "show", "plants")
    assert "prompt      Water the plants." in shown.out
    assert (await talk(program, "cron", "remove", "plants")).out == "Removed Plants.\n"
    assert await run_json(program, "list") == []


async def test_job_runs_in_the_command_line_without_a_gateway(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "pwd"})]), Say("They have water."))
    await run_json(program, "add", "every monday 9:00", "Water the plants.", "--name", "Plants")
    done = await talk(program, "cron", "run", "plants")
    assert (done.code, done.out) == (0, "They have water.\n")
    (run,) = await run_json(program, "history", "plants")
    assert (run["state"], run["output"]) == ("done", "They have water.")
    session = await talk(program, "sessions", "show", run["session_id"])
    assert "Water the plants." in session.out
    assert str(program.home / "workspaces") in server.received[1].body.decode()


async def test_run_due_starts_due_jobs(program: Program) -> None:
    await run_json(
        program, "add", "in 1s", "--script", "echo $TALARIA_SESSION_SOURCE; pwd", "--folder", str(program.home)
    )
    while not (await run_json(program, "run-due"))["runs"]:
        continue
    (job,) = await run_json(program, "list", "--all")
    assert job["state"] == "over"
    (run,) = await run_json(program, "history", job["id"])
    assert (run["state"], run["output"]) == ("done", f"cron\n{program.home}")
    assert await run_json(program, "run-due") == {"runs": 0}


async def test_failing_script_is_reported(program: Program) -> None:
    await run_json(program, "add", "every 1h", "--script", "echo oh; exit 3", "--name", "Bad")
    done = await talk(program, "cron", "run", "Bad")
    assert done.code == 1
    assert "exit code 3" in done.out
    assert "oh" in done.out


async def test_missing_folder_of_a_job_is_reported(program: Program) -> None:
    await run_json(
        program, "add", "every 1h", "--script", "pwd", "--name", "Lost", "--folder", str(program.home / "gone")
    )
    done = await talk(program, "cron", "run", "Lost")
    assert done.code == 1
    assert "doesn't exist" in done.out


async def test_script_of_a_job_cannot_create_jobs(program: Program) -> None:
    await run_json(program, "add", "every 1h", "--script", "talaria cron add 30m again", "--name", "Rabbit")
    done = await talk(program, "cron", "run", "Rabbit")
    assert "can't create other jobs" in done.out
    assert [job["name"] for job in await run_json(program, "list")] == ["Rabbit"]


async def test_monthly_spending_of_a_job_is_limited(program: Program, server: ModelServer) -> None:
    server.script(*[Say("It rains.", usage=Tokens(0, 1000))] * 3)
    await run_json(program, "add", "every 1h", "Weather?", "--name", "Dear", "--dollars", "1.9")
    assert (await talk(program, "cron", "run", "Dear")).code == 0
    assert (
        await talk(program, "cron", "run", "Dear")
    ).code == 1  # one dollar is spent, and the next run could exceed the limit
    await run_json(program, "edit", "Dear", "--dollars", "10")
    assert (await talk(program, "cron", "run", "Dear")).code == 0
    assert [run["state"] for run in await run_json(program, "history", "Dear")] == ["done", "failed", "done"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("add", "soon", "x"), "I don't understand the time"),
        (("add", "30m"), "Say what to do"),
        (("add", "30m", "x", "--deliver", "telegram:Family"), "not connected to a chat network"),
        (("add", "30m", "x", "--zone", "Mars"), "Unknown time zone"),
        (("edit", "nothing", "--when", "30m"), "no job `nothing`"),
        (("show", "nothing"), "There are no jobs yet"),
    ],
)
async def test_invalid_job_arguments_are_refused_with_a_hint(
    program: Program, arguments: tuple[str, ...], part: str
) -> None:
    done = await talk(program, "cron", *arguments)
    assert done.code == 1
    assert part in done.err


async def test_edit_without_changes_is_refused(program: Program) -> None:
    await run_json(program, "add", "30m", "x")
    done = await talk(program, "cron", "edit", "x")
    assert done.code == 1
    assert "Nothing to change" in done.err


async def test_sessions_of_job_runs_are_pruned_like_untitled_ones(program: Program, server: ModelServer) -> None:
    server.script(Say("It rains."))
    await run_json(program, "add", "every 1h", "Weather?", "--name", "Weather")
    await talk(program, "cron", "run", "Weather")
    pruned = await talk(program, "sessions", "prune", "--older-than", "0d", "--yes")
    assert "Deleted 1 session" in pruned.out
    assert [run["output"] for run in await run_json(program, "history", "Weather")] == ["It rains."]
