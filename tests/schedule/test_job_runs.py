"""Runs of jobs: started when due, in their own session, and reported to their targets."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.schedule.schedule_fixture import HOME, OWNER, RULES, ScheduleFixture, open_schedule
from tests.storage.engines import StoreLocation

from talaria.contracts.jobs import JobRequest, JobRequester
from talaria.contracts.sandbox import ShellResult
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.stores.turns import Cap
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.session_context import current_context
from talaria.schedule.due_runs import start_named_job
from talaria.schedule.job_store import change_job
from talaria.sessions.chat_directory import HomeChat, record_channel, write_home
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Ask, ModelServer, Received, Say, refused


@pytest.fixture
async def schedule(
    tmp_path: Path, store_location: StoreLocation, server: ModelServer, clock: SettableClock
) -> AsyncIterator[ScheduleFixture]:
    async with open_schedule(tmp_path, store_location, server, clock) as schedule:
        await schedule.application.store.write(lambda tx: write_home(tx, HomeChat(HOME)))
        yield schedule


async def test_due_job_runs_in_its_own_session(schedule: ScheduleFixture, server: ModelServer) -> None:
    job = await schedule.add("every 2h")
    assert await schedule.pass_time(minutes=119) == 0
    server.script(Say("It rains."))
    assert await schedule.pass_time(minutes=1) == 1
    assert await schedule.posted() == [(HOME.chat_id, "It rains.")]
    (run,) = await schedule.runs(job)
    assert (run.state, run.output, run.due_at) == ("done", "It rains.", schedule.clock.now())
    assert run.session_id is not None
    session = await schedule.application.store.read(lambda tx: tx.sessions.get(run.session_id or SessionId("")))
    assert session is not None
    assert (session.source, session.owner) == ("cron", "")
    assert "Look at the weather." in server.received[0].question
    assert "Look at the weather." in session.title


async def test_delivered_report_is_recorded_in_the_session_of_the_target_chat(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    await schedule.add("30m", deliver=("matrix",))
    server.script(Say("It rains."))
    await schedule.pass_time(minutes=30)
    binding = await schedule.application.store.read(lambda tx: tx.bindings.get("agent:main:matrix:private:!home"))
    assert binding is not None
    stored = await schedule.application.store.read(lambda tx: tx.messages.load(binding.session_id))
    assert [(one.message.role, one.message.text) for one in stored] == [("assistant", "It rains.")]
    assert "Look at the weather." in stored[0].message.author


@pytest.mark.parametrize("reply", ["[SILENT]", " **[SILENT]** nothing new", ""])
async def test_silent_or_empty_reply_is_not_posted_but_recorded(
    schedule: ScheduleFixture, server: ModelServer, reply: str
) -> None:
    job = await schedule.add("30m")
    server.script(Say(reply), Say(reply))
    await schedule.pass_time(minutes=30)
    assert await schedule.posted() == []
    assert [run.state for run in await schedule.runs(job)] == ["done"]


async def test_job_ends_after_its_number_of_runs(schedule: ScheduleFixture) -> None:
    once, twice = await schedule.add("30m"), await schedule.add("every 1h", times=2)
    for _ in range(6):
        await schedule.pass_time(minutes=30)
    assert [len(await schedule.runs(job)) for job in (once, twice)] == [1, 2]
    assert [(await schedule.job(job)).state for job in (once, twice)] == ["over", "over"]


async def test_paused_job_runs_again_at_its_next_time_after_resuming(schedule: ScheduleFixture) -> None:
    job = await schedule.add("every 1h")
    now = schedule.clock.now()
    await schedule.application.store.write(
        lambda tx: change_job(tx, job.id, JobRequest(paused=True), OWNER, RULES, now)
    )
    assert await schedule.pass_time(hours=5, minutes=30) == 0
    later = schedule.clock.now()
    await schedule.application.store.write(
        lambda tx: change_job(tx, job.id, JobRequest(paused=False), OWNER, RULES, later)
    )
    assert await schedule.pass_time(minutes=29) == 0
    assert await schedule.pass_time(minutes=1) == 1
    assert [run.state for run in await schedule.runs(job)] == ["done"]


async def test_manual_run_does_not_change_the_job(schedule: ScheduleFixture, server: ModelServer) -> None:
    job = await schedule.add("every 1h", times=3)
    now = schedule.clock.now()
    await schedule.application.store.write(
        lambda tx: change_job(tx, job.id, JobRequest(paused=True), OWNER, RULES, now)
    )
    before = await schedule.job(job)
    await schedule.application.store.write(lambda tx: start_named_job(tx, job.id, OWNER, now))
    server.script(Say("Now."))
    assert await schedule.make_scheduler().run_pending_turns() == 1
    assert [run.output for run in await schedule.runs(job)] == ["Now."]
    assert await schedule.job(job) == before


async def test_output_of_the_script_is_in_the_prompt(schedule: ScheduleFixture, server: ModelServer) -> None:
    await schedule.add(
        "30m", prompt="What of this matters?", script="df", skills=("plumbing",), folder=str(schedule.folder)
    )
    schedule.answers = [ShellResult(0, "disk: 99 %")]
    server.script(Say("The disk is full."))
    await schedule.pass_time(minutes=30)
    question = server.received[0].question
    assert all(
        part in question for part in ("disk: 99 %", "What of this matters?", "How plumbing is done.", "exit code 0")
    )
    ((line, folder, context),) = schedule.scripts
    assert (line, folder, context.source) == ("df", schedule.folder, "cron")
    assert (context.cron_auto_deliver_platform, context.cron_auto_deliver_chat_id) == (HOME.platform, HOME.chat_id)
    assert await schedule.posted() == [(HOME.chat_id, "The disk is full.")]


@pytest.mark.parametrize(
    ("ran", "state", "posted"),
    [
        (ShellResult(0, "All is well.\n"), "done", ["All is well."]),
        (ShellResult(0, " \n"), "done", []),
        (
            ShellResult(3, "no route"),
            "failed",
            ["**df** failed: The script ended with exit code 3.\n\n```\nno route\n```"],
        ),
    ],
)
async def test_job_without_a_prompt_calls_no_model(
    schedule: ScheduleFixture, server: ModelServer, ran: ShellResult, state: str, posted: list[str]
) -> None:
    job = await schedule.add("30m", prompt=None, script="df")
    schedule.answers = [ran]
    await schedule.pass_time(minutes=30)
    assert [(run.state, run.session_id) for run in await schedule.runs(job)] == [(state, None)]
    assert [text for _, text in await schedule.posted()] == posted
    assert server.received == []


async def test_failed_run_is_reported_and_the_job_stays_scheduled(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    job = await schedule.add("every 1h", name="Weather")
    server.script(refused())
    await schedule.pass_time(hours=1)
    assert [run.state for run in await schedule.runs(job)] == ["failed"]
    ((_, text),) = await schedule.posted()
    assert text.startswith("**Weather** failed: ")
    assert (await schedule.job(job)).state == "waiting"


async def test_report_follows_the_session_to_its_current_chat(schedule: ScheduleFixture, server: ModelServer) -> None:
    here, there = Address("telegram", "100"), Address("matrix", "!there")
    store = schedule.application.store
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="telegram")))
    await store.write(lambda tx: tx.bindings.bind("here", session.id, here))
    await schedule.add("every 1h", asker=JobRequester(session_id=session.id))
    server.script(Say("First."), Say("Second."), Say("Third."))
    await schedule.pass_time(hours=1)
    await store.write(lambda tx: tx.bindings.bind("there", session.id, there))
    await store.write(lambda tx: tx.bindings.unbind("here"))
    await schedule.pass_time(hours=1)
    await store.write(lambda tx: tx.bindings.unbind("there"))
    await schedule.pass_time(hours=1)
    assert await schedule.posted() == [("100", "First."), ("!there", "Second."), ("100", "Third.")]


async def test_named_chats_are_resolved_when_the_job_is_created(schedule: ScheduleFixture, server: ModelServer) -> None:
    family = Address("telegram", "-100", "group")
    now = schedule.clock.now()
    await schedule.application.store.write(lambda tx: record_channel(tx, family, "Family", now))
    await schedule.add("30m", deliver=("telegram:Family", "home"))
    await schedule.application.store.write(lambda tx: record_channel(tx, family, "Relatives", now))
    server.script(Say("Dinner."))
    await schedule.pass_time(minutes=30)
    assert await schedule.posted() == [("-100", "Dinner."), (HOME.chat_id, "Dinner.")]


async def test_cost_cap_of_a_job_applies_to_its_runs(schedule: ScheduleFixture, server: ModelServer) -> None:
    schedule.caps = (Cap("job:weather", 0),)
    job = await schedule.add("30m")
    await schedule.pass_time(minutes=30)
    (run,) = await schedule.runs(job)
    assert run.state == "failed"
    assert server.received == []


async def test_job_run_cannot_create_jobs(schedule: ScheduleFixture, server: ModelServer) -> None:
    await schedule.add("30m", prompt="Have this done for ever.")
    server.script(
        Say(calls=[Ask("cron", {"action": "add", "when": "every 1m", "prompt": "Again."})]),
        Say(calls=[Ask("cron", {"action": "list"})]),
        Say("I may not."),
    )
    await schedule.pass_time(minutes=30)
    assert [text for _, text in await schedule.posted()] == ["I may not."]
    assert "can't create jobs" in server.received[1].body.decode()
    assert len(await schedule.application.store.read(lambda tx: tx.jobs.find())) == 1


@pytest.mark.slow
async def test_job_run_has_its_target_in_the_environment_and_no_person_to_ask(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    await schedule.add("30m")
    command = "echo $TALARIA_SESSION_SOURCE $TALARIA_CRON_AUTO_DELIVER_PLATFORM $TALARIA_CRON_AUTO_DELIVER_CHAT_ID"
    server.script(Say(calls=[Ask("terminal", {"command": command})]), Say("Seen."))
    await schedule.pass_time(minutes=30)
    assert f"cron {HOME.platform} {HOME.chat_id}" in server.received[1].body.decode()
    assert "nobody is there to answer" in server.received[0].body.decode()


@pytest.mark.slow
async def test_parallel_runs_have_their_own_targets_in_the_environment(
    schedule: ScheduleFixture, server: ModelServer
) -> None:
    show = Ask("terminal", {"command": "echo at=$TALARIA_CRON_AUTO_DELIVER_CHAT_ID."})

    def think(received: Received) -> Say:
        seen = re.findall(r"at=(\S*)\.", received.json["messages"][-1]["content"])
        return Say(f"{received.question.split()[-1]} {seen[-1]}") if seen else Say(calls=[show])

    server.answering(think)
    for name, target in (("one", "telegram:100100"), ("two", "telegram:200200"), ("none", "nowhere")):
        await schedule.add("30m", prompt=f"Where? {name}", deliver=(target,), name=name)
    await schedule.pass_time(minutes=30)
    assert sorted(await schedule.posted()) == [("100100", "one 100100"), ("200200", "two 200200")]
    jobs = await schedule.application.store.read(lambda tx: tx.jobs.find())
    outputs = await schedule.application.store.read(lambda tx: [tx.jobs.runs(job.id)[0].output for job in jobs])
    assert sorted(outputs) == ["none ", "one 100100", "two 200200"]
    assert current_context() is None
