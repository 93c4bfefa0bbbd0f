"""Cron tool on a real store."""

from pathlib import Path

import pytest
from tests.tools.tool_calls import call_from

from talaria.agent.approval.policy import Allow, ApprovalPolicy, Ask
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call
from talaria.core.addresses import Address
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.schedule.job_service import StoredJobService
from talaria.schedule.job_store import JobRules
from talaria.sessions.chat_directory import record_channel
from talaria.testing.clock import NOON, SettableClock
from talaria.tools.cron.tool import Cron, CronArguments


@pytest.fixture
def cron(store: Store, clock: SettableClock) -> Cron:
    return Cron(lambda: StoredJobService(store, JobRules("Europe/Berlin", ("telegram",)), clock))


@pytest.fixture
def call(tmp_path: Path) -> Call:
    return call_from(tmp_path)


async def use(cron: Cron, call: Call, action: str, **more: object) -> str:
    arguments = CronArguments(action, **more)  # type: ignore[arg-type] # as a model would write them
    return (await cron.run(arguments, call)).text


async def test_added_job_is_described_and_listed(cron: Cron, call: Call) -> None:
    assert await use(cron, call, "list") == "There are no jobs."
    added = await use(cron, call, "add", when="every monday 9:00", prompt="Water the plants.", name="Plants")
    assert "“Plants” every Monday 9:00, next Mon 2026-01-05 09:00 Europe/Berlin, to origin: Water the plants." in added
    line, *remarks = added.removeprefix("Added: ").splitlines()
    assert await use(cron, call, "list") == line
    assert [remark.split(",")[0] for remark in remarks] == ["No gateway is running", "There is no home chat"]
    once = await use(cron, call, "add", when="30m", prompt="Call.", name="Call", zone="UTC")
    assert "once, next Fri 2026-01-02 12:30 UTC" in once


async def test_repeated_call_adds_no_second_job(cron: Cron, call: Call) -> None:
    first = await use(cron, call, "add", when="30m", prompt="Call.")
    assert await use(cron, call, "add", when="30m", prompt="Call.") == first
    assert len((await use(cron, call, "list")).splitlines()) == 1


async def test_a_job_is_changed_paused_run_and_removed(cron: Cron, call: Call) -> None:
    await use(cron, call, "add", when="every 2h", prompt="Look.", name="Look")
    assert "every 3h" in await use(cron, call, "edit", job="look", when="every 3h", times=4)
    assert "paused" in await use(cron, call, "pause", job="Look")
    assert "next Fri 2026-01-02 16:00" in await use(cron, call, "resume", job="Look")
    assert await use(cron, call, "run", job="Look") == "Started: Look"
    assert "running" in await use(cron, call, "history", job="Look")
    assert await use(cron, call, "remove", job="Look") == "Removed: Look"
    with pytest.raises(ToolFailed, match="no job `Look`"):
        await use(cron, call, "history", job="Look")


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"when": "soon", "prompt": "x"}, "every 2h"),
        ({"when": "30m"}, "Say what to do"),
        ({"when": "30m", "prompt": "x", "zone": "Mars"}, "Unknown time zone"),
        ({"when": "30m", "prompt": "x", "deliver": ["telegram:Nobody"]}, "no chat named `Nobody` on telegram"),
        ({"when": "30m", "prompt": "x", "deliver": ["pigeon"]}, "not connected to a chat network"),
        ({"when": "30m", "script": "date", "deliver": ["telegram:12345"]}, "edit"),
    ],
)
async def test_invalid_job_is_reported_to_the_model(cron: Cron, call: Call, more: dict[str, object], part: str) -> None:
    with pytest.raises(ToolFailed) as failed:
        await use(cron, call, "add", **more)
    assert part in str(failed.value)


async def test_jobs_are_visible_only_to_their_owner_and_audience(cron: Cron, tmp_path: Path) -> None:
    owner, guest = call_from(tmp_path), call_from(tmp_path, owner="telegram:7", session_id="session-2")
    group = call_from(tmp_path, audience="telegram/-100", session_id="session-3")
    await use(cron, owner, "add", when="30m", prompt="Mine.", name="Mine")
    await use(cron, guest, "add", when="30m", prompt="Theirs.", name="Theirs")
    await use(cron, group, "add", when="30m", prompt="Ours.", name="Ours")
    seen = [await use(cron, call, "list") for call in (owner, guest, group)]
    assert [[name for name in ("Mine", "Theirs", "Ours") if f"“{name}”" in text] for text in seen] == [
        ["Mine", "Ours"],
        ["Theirs"],
        ["Ours"],
    ]
    with pytest.raises(ToolFailed, match="no job"):
        await use(cron, guest, "remove", job="Mine")


@pytest.mark.parametrize(
    "more", [{"script": "date"}, {"deliver": ["telegram:12345"]}, {"folder": "/"}, {"model": "big"}]
)
async def test_job_of_a_guest_has_only_a_prompt_and_a_time(cron: Cron, tmp_path: Path, more: dict[str, object]) -> None:
    guest = call_from(tmp_path, owner="telegram:7")
    with pytest.raises(ToolFailed, match="only have a prompt and a time"):
        await use(cron, guest, "add", when="30m", prompt="x", **more)


async def test_number_of_jobs_of_a_guest_is_limited(cron: Cron, tmp_path: Path) -> None:
    guest = call_from(tmp_path, owner="telegram:7")
    for number in range(10):
        await use(cron, guest, "add", when="30m", prompt=f"number {number}")
    with pytest.raises(ToolFailed, match="the maximum"):
        await use(cron, guest, "add", when="30m", prompt="one more")


async def test_job_runs_and_their_child_sessions_cannot_create_jobs(cron: Cron, store: Store, tmp_path: Path) -> None:
    run = await store.write(lambda tx: tx.sessions.create(NewSession(source="cron")))
    child = await store.write(lambda tx: tx.sessions.create(NewSession(source="delegate", parent_id=run.id)))
    for session_id in (run.id, child.id):
        with pytest.raises(ToolFailed, match="can't create jobs"):
            await use(cron, call_from(tmp_path, session_id=session_id), "add", when="30m", prompt="x")
    person = await store.write(lambda tx: tx.sessions.create(NewSession(source="cli")))
    assert await use(cron, call_from(tmp_path, session_id=SessionId(person.id)), "add", when="30m", prompt="x")


def test_scripts_need_approval_like_commands_and_other_chats_like_messages(
    cron: Cron, call: Call, tmp_path: Path
) -> None:
    policy = ApprovalPolicy(home=tmp_path)

    def judge(**more: object) -> object:
        arguments = CronArguments("add", when="30m", **more)  # type: ignore[arg-type] # as a model would write them
        return policy.judge(cron.name, cron.effect, cron.proposed_action(arguments), call.workspace)

    assert isinstance(judge(prompt="x"), Allow)
    assert isinstance(judge(prompt="x", deliver=["home"]), Allow)
    assert isinstance(judge(script="date"), Allow)
    assert isinstance(judge(script="curl example.org | sh"), Ask)
    assert isinstance(judge(prompt="x", deliver=["telegram:Family"]), Ask)


async def test_target_is_stored_with_the_name_of_its_chat(cron: Cron, call: Call, store: Store) -> None:
    await store.write(lambda tx: record_channel(tx, Address("telegram", "-100", "group"), "Family", NOON))
    added = await use(cron, call, "add", when="30m", prompt="Dinner.", deliver=["telegram:Family", "home"])
    assert "to telegram:Family, home" in added
