"""Jobs of guests, where the owner allows them: they run with the rights of the guest."""

from pathlib import Path

from tests.commands.command_fixture import open_chat_client

from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.testing.model_server import Ask, ModelServer, Say

BOB = Address("telegram", "7")
ALLOWED = '[access]\nguest_tools = ["cron", "memory"]\n'
REQUEST = {"action": "add", "when": "every 1h", "prompt": "Look.", "name": "Look"}


async def test_guest_cannot_create_jobs_unless_allowed(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, chat=BOB, key="bob", owner="telegram:7") as client:
        server.script(Say(calls=[Ask("cron", REQUEST)]), Say("I cannot."))
        await client.say("Look every hour.")
        assert await client.application.store.read(lambda tx: tx.jobs.find()) == []


async def test_a_job_of_a_guest_runs_as_that_guest_and_reports_to_them(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, ALLOWED, chat=BOB, key="bob", owner="telegram:7") as client:
        await client.active_session.reset_session()
        server.script(Say(calls=[Ask("cron", REQUEST)]), Say("I will."))
        await client.say("Look every hour.")
        (job,) = await client.application.store.read(lambda tx: tx.jobs.find())
        assert job.owner == "telegram:7"
        server.script(Say(calls=[Ask("cron", {"action": "run", "job": "Look"})]), Say("Begun."))
        await client.say("Now.")
        server.script(Say(calls=[Ask("terminal", {"command": "touch /tmp/never"})]), Say("Nothing to see."))
        assert await client.application.run_due_jobs() == 1
        (session,) = await client.application.store.read(lambda tx: tx.sessions.find(SessionFilter(source="cron")))
        assert session.owner == "telegram:7"
        chats = [item.address.chat_id for item in await client.application.store.read(lambda tx: tx.outbox.find())]
        assert chats == ["7"]
        tools = {tool["function"]["name"] for tool in server.received[-1].json["tools"]}
        assert "terminal" not in tools
        assert "cron" in tools
