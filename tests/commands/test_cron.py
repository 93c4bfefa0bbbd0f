"""`/cron` as a person uses it, in a terminal and in a group."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.core.addresses import Address
from talaria.testing.model_server import ModelServer, Say

GROUP = Address("telegram", "-100", "group")


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server, '[cli]\ntime_zone = "Europe/Berlin"\n') as client:
        yield client


async def test_job_is_added_shown_changed_paused_and_removed(client: ChatClient) -> None:
    assert "Nothing is scheduled" in await client.use("/cron")
    added = await client.use("/cron add every monday 9:00 water the plants")
    assert "every Monday 9:00, next Mon " in added
    assert "No gateway is running" in added
    assert "water the plants" in await client.use("/cron list")
    assert "every Monday 9:00 (Europe/Berlin)" in await client.use("/cron show plants")
    assert "every Friday 10:00" in await client.use("/cron edit plants when every friday 10:00")
    assert "is paused" in await client.use("/cron pause plants")
    assert "paused" in await client.use("/cron")
    assert "next Fri " in await client.use("/cron resume plants")
    assert "hasn't run yet" in await client.use("/cron history plants")
    assert "Removed" in await client.use("/cron remove plants")
    assert "Nothing is scheduled" in await client.use("/cron")


async def test_a_job_can_be_run_at_once(client: ChatClient, server: ModelServer) -> None:
    await client.use("/cron add every monday 9:00 water the plants")
    assert "has started" in await client.use("/cron run plants")
    server.script(Say("They have water."))
    assert await client.application.run_due_jobs() == 1
    assert "**done**: They have water." in await client.use("/cron history plants")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("dance", "Unknown action"),
        ("add", "Give a time and a task"),
        ("add water the plants", "Start with a time"),
        ("add every monday 9:00", "Say what to do"),
        ("pause", "Which job?"),
        ("show nothing", "no job `nothing`"),
        ("edit plants colour green", "FIELD is one of"),
    ],
)
async def test_invalid_arguments_are_answered_with_advice(client: ChatClient, arguments: str, part: str) -> None:
    assert part in await client.use(f"/cron {arguments}")


async def test_guest_cannot_add_a_job(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, chat=GROUP, key="group") as client:
        answer = await client.use("/cron add 30m hello", author=Author("Bob", owner=False))
        assert "scheduled" not in answer
        assert await client.application.store.read(lambda tx: tx.jobs.find()) == []


async def test_group_sees_only_jobs_that_were_added_there(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        await client.use("/cron add 30m think of the secret")
    async with open_chat_client(tmp_path, server, chat=GROUP, key="group", audience="telegram/-100") as client:
        assert "secret" not in await client.use("/cron")
        await client.use("/cron add 30m think of dinner")
        shown = await client.use("/cron")
        assert "dinner" in shown
        assert "secret" not in shown
        assert "no job" in await client.use("/cron remove secret")


async def test_actions_of_cron_are_offered_as_completions(client: ChatClient) -> None:
    assert "history" in dict(await client.offers("cron"))
