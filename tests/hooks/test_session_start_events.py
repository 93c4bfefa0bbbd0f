"""Hook events for sessions that start in a chat."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import structs
from tests.gateway.in_process_gateway import run_gateway
from tests.hooks.hook_folders import notes, wait_for_notes, write_hook

from talaria.contracts.platform import Incoming, Sender
from talaria.core.addresses import Address
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer


def update(text: str, *, later: timedelta = timedelta()) -> Incoming:
    address = Address("loopback", "ann")
    return Incoming(
        external_id=text, address=address, sender=Sender("ann", "Ann"), at=datetime.now(UTC) + later, text=text
    )


async def test_idle_reset_sends_session_events_once(tmp_path: Path, server: ModelServer) -> None:
    folder = write_hook(tmp_path / "profiles" / "default" / "hooks", "notes", "events: session:*\n")
    settings = '[platforms.loopback]\nreset = "idle"\nreset_idle_minutes = 60\n'
    async with (
        LoopbackNetwork() as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=settings) as small,
    ):
        await small.dispatcher.receive(update("one"))
        await network.posted(1)
        late = update("two", later=timedelta(hours=2))
        await small.dispatcher.receive(late)
        await small.dispatcher.receive(structs.replace(late, text="again"))
        (reset,) = await wait_for_notes(folder, "session:reset")
    events = notes(folder)
    assert [event for event, _ in events] == ["session:start", "session:start", "session:end", "session:reset"]
    assert reset["previous_session_id"] == events[0][1]["session_id"] == events[2][1]["session_id"]
    assert reset["session_id"] == events[1][1]["session_id"] != reset["previous_session_id"]
    assert (reset["reason"], reset["user_name"], reset["chat_id"]) == ("policy", "Ann", "ann")
