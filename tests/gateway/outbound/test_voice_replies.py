"""Voice replies of a stopped worker can be recorded by the next one."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from tests.storage.slow_store import SlowStore

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.ids import TurnId, new_id
from talaria.gateway.outbound.voice_replies import VOICE_REPLY, PendingVoiceReply, VoiceReplies
from talaria.settings.model import LiveSettings, Settings


async def test_worker_stopped_while_acquiring_a_voice_reply_releases_its_lease(store: Store, tmp_path: Path) -> None:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
    turn, address = TurnId(new_id()), Address("loopback", "ann")
    pending = PendingVoiceReply(
        session_id=session.id, turn_id=turn, address=address, text="Good morning.", at=datetime.now(UTC)
    )
    await store.write(lambda tx: VOICE_REPLY.write(tx, session.id, pending, turn))
    slow = SlowStore(store)
    replies = VoiceReplies(slow, {}, tmp_path, lambda: None, LiveSettings(Settings()))
    async with asyncio.TaskGroup() as group:
        speaking = group.create_task(replies.follow_up())
        await slow.committed.wait()
        speaking.cancel()
        slow.resumed.set()
    assert await store.read(lambda tx: tx.leases.get(f"speak:{turn}")) is None
    assert await store.read(lambda tx: VOICE_REPLY.get(tx, session.id, turn)) == pending
