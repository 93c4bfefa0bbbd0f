"""Cross-posts are delivered once to the chat and recorded in its session; on every engine."""

import asyncio
from datetime import timedelta

from tests.contracts.sample_messages import text_message
from tests.runtime.scripted_runner import run_pending_turns
from tests.storage.engines import StoreLocation

from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.contracts.turns import TurnLog
from talaria.core.addresses import Address
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import File, Message, Text
from talaria.runtime.cross_posts import CrossPost, claim_ownerless_session, copy_mirrored_messages, send_cross_post
from talaria.runtime.outbox import read_content
from talaria.runtime.turns import add_to_inbox, list_pending_messages, list_pending_sessions
from talaria.sessions.keys import build_session_key, link_user_ids
from talaria.sessions.transcript_export import is_mirrored
from talaria.testing.clock import NOON, SettableClock

ANN = Address("loopback", "ann", "private")
GROUP = Address("loopback", "-7", "group")


def cross_post(text: str, to: Address = ANN, *, key: str = "", sender: SessionId | None = None) -> CrossPost:
    return CrossPost(key=key or text, address=to, content=Content(text=text), source="a test", at=NOON, sender=sender)


def session_id_at(tx: Transaction, address: Address) -> SessionId:
    binding = tx.bindings.get(build_session_key(address))
    assert binding is not None
    return binding.session_id


def session_at(tx: Transaction, address: Address) -> Session:
    session = tx.sessions.get(session_id_at(tx, address))
    assert session is not None
    return session


def create_session_at(tx: Transaction, address: Address, owner: str = "") -> SessionId:
    session = tx.sessions.create(NewSession(source=address.platform, owner=owner))
    tx.bindings.bind(build_session_key(address), session.id, address)
    return session.id


async def send(store: Store, text: str, to: Address = ANN) -> bool:
    return await store.write(lambda tx: send_cross_post(tx, cross_post(text, to))) is not None


async def bound_session(store: Store, address: Address) -> SessionId:
    return await store.write(lambda tx: create_session_at(tx, address))


async def session_id_of(store: Store, address: Address) -> SessionId:
    return await store.read(lambda tx: session_id_at(tx, address))


async def transcript(store: Store, session_id: SessionId) -> list[tuple[str, str]]:
    stored = await store.read(lambda tx: tx.messages.load(session_id))
    return [(one.message.role, one.message.text) for one in stored]


async def queued(store: Store) -> list[tuple[str, str]]:
    items = await store.read(lambda tx: tx.outbox.find())
    return [(item.address.chat_id, read_content(item.payload).text) for item in items]


async def agree(turn: TurnLog) -> TurnEnd:
    """Answer the last message."""
    end = TurnAnswered(f"yes, {(await turn.read_transcript())[-1].message.text}")
    await turn.finish(end, Message(role="assistant", parts=(Text(end.text),), at=NOON))
    return end


async def test_cross_post_is_queued_and_recorded_once(store: Store) -> None:
    session_id = await bound_session(store, ANN)
    assert await send(store, "dinner at 7")
    assert not await send(store, "dinner at 7")
    assert await queued(store) == [("ann", "dinner at 7")]
    assert await transcript(store, session_id) == [("assistant", "dinner at 7")]
    (stored,) = await store.read(lambda tx: tx.messages.load(session_id))
    assert stored.message.author == "Agent, from a test"
    assert is_mirrored(stored.message)


async def test_cross_post_to_an_idle_session_leaves_no_pending_work(store: Store) -> None:
    await bound_session(store, ANN)
    await send(store, "dinner at 7")
    assert await store.write(list_pending_sessions) == []


async def test_cross_post_during_a_turn_is_recorded_after_the_turn(store: Store) -> None:
    session_id = await bound_session(store, ANN)

    async def cross_post_during_turn(turn: TurnLog) -> TurnEnd:
        if await queued(store) == []:
            for text in ("one", "two"):
                await send(store, text)
            assert await transcript(store, session_id) == [("user", "hello")]
            assert await store.read(lambda tx: list_pending_messages(tx, session_id)) == []
            await add_to_inbox(store, session_id, "test", "2", text_message("and now?"))
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await run_pending_turns(store, session_id, cross_post_during_turn) == TurnAnswered("yes, and now?")
    assert await transcript(store, session_id) == [
        ("user", "hello"),
        ("assistant", "yes, hello"),
        ("assistant", "one"),
        ("assistant", "two"),
        ("user", "and now?"),
        ("assistant", "yes, and now?"),
    ]
    assert await store.read(lambda tx: tx.inbox.list_unsettled(session_id)) == []


async def test_cross_post_alone_starts_no_turn(store: Store) -> None:
    session_id = await bound_session(store, ANN)

    async def cross_post_and_agree(turn: TurnLog) -> TurnEnd:
        await send(store, "by the way")
        return await agree(turn)

    await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await run_pending_turns(store, session_id, cross_post_and_agree) == TurnAnswered("yes, hello")
    assert (await transcript(store, session_id))[-1] == ("assistant", "by the way")
    assert len(await store.read(lambda tx: tx.turns.find(session_id))) == 1


async def test_interrupted_turn_is_resumed_before_a_cross_post_is_recorded(
    store_location: StoreLocation, clock: SettableClock, store: Store
) -> None:
    session_id = await bound_session(store, ANN)

    async def cancel(turn: TurnLog) -> TurnEnd:
        raise asyncio.CancelledError

    await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await run_pending_turns(store, session_id, cancel) is None
    clock.advance(timedelta(minutes=1))
    other = store_location.open_store(clock, "worker-2")
    await send(other, "by the way")
    assert await transcript(other, session_id) == [("user", "hello")]
    assert await run_pending_turns(other, session_id, agree) == TurnAnswered("yes, hello")
    await other.close()
    assert [text for _, text in await transcript(store, session_id)] == ["hello", "yes, hello", "by the way"]


async def test_cross_post_left_by_a_dead_worker_is_recorded_by_the_next(store: Store) -> None:
    session_id = await bound_session(store, ANN)

    async def die_after_turn(turn: TurnLog) -> TurnEnd:
        await send(store, "by the way")
        await agree(turn)
        raise asyncio.CancelledError

    await add_to_inbox(store, session_id, "test", "1", text_message("hello"))
    assert await run_pending_turns(store, session_id, die_after_turn) is None
    assert [text for _, text in await transcript(store, session_id)] == ["hello", "yes, hello"]
    assert await store.write(list_pending_sessions) == [session_id]
    assert await run_pending_turns(store, session_id, agree) is None
    assert [text for _, text in await transcript(store, session_id)] == ["hello", "yes, hello", "by the way"]
    assert await store.write(list_pending_sessions) == []


async def test_a_cross_post_to_a_silent_chat_starts_an_unowned_session(store: Store) -> None:
    await send(store, "welcome")
    session = await store.read(lambda tx: session_at(tx, ANN))
    assert (session.owner, session.audience, session.source) == ("loopback/ann", "", "loopback")
    await store.write(lambda tx: claim_ownerless_session(tx, session_at(tx, ANN), ANN, "loopback:ann"))
    await store.write(lambda tx: claim_ownerless_session(tx, session_at(tx, ANN), ANN, "loopback:bob"))
    assert (await store.read(lambda tx: session_at(tx, ANN))).owner == "loopback:ann"
    assert await transcript(store, session.id) == [("assistant", "welcome")]


async def test_cross_post_to_another_id_of_a_person_is_recorded_in_their_session(store: Store) -> None:
    session_id = await bound_session(store, ANN)
    await store.write(lambda tx: link_user_ids(tx, "loopback", "ann", "4915112345"))
    await send(store, "hello", Address("loopback", "4915112345", "private"))
    assert await queued(store) == [("4915112345", "hello")]
    assert await transcript(store, session_id) == [("assistant", "hello")]


async def test_owner_of_the_agent_can_claim_an_unowned_session(store: Store) -> None:
    await send(store, "welcome")
    await store.write(lambda tx: claim_ownerless_session(tx, session_at(tx, ANN), ANN, ""))
    assert (await store.read(lambda tx: session_at(tx, ANN))).owner == ""


async def test_a_group_cross_post_is_noted_for_every_participant(store: Store) -> None:
    ann, bob = (Address("loopback", "-7", "group", user_id=name) for name in ("ann", "bob"))
    for address in (ann, bob, Address("loopback", "-70", "group", user_id="cy"), Address("loopback", "-7", "private")):
        await bound_session(store, address)
    await send(store, "we meet at noon", GROUP)
    assert await queued(store) == [("-7", "we meet at noon")]
    for address in (GROUP, ann, bob):
        found = await session_id_of(store, address)
        assert await transcript(store, found) == [("assistant", "we meet at noon")]
    others = (Address("loopback", "-70", "group", user_id="cy"), Address("loopback", "-7", "private"))
    for address in others:
        found = await session_id_of(store, address)
        assert await transcript(store, found) == []
    dan = Address("loopback", "-7", "group", user_id="dan")
    late = await bound_session(store, dan)
    await store.write(lambda tx: copy_mirrored_messages(tx, late, dan))
    assert await transcript(store, late) == [("assistant", "we meet at noon")]


async def test_a_session_without_cross_posts_gets_no_note(store: Store) -> None:
    session_id = await bound_session(store, ANN)
    await store.write(lambda tx: copy_mirrored_messages(tx, session_id, ANN))
    await store.write(
        lambda tx: copy_mirrored_messages(tx, session_id, Address("loopback", "-9", "group", user_id="ann"))
    )
    assert await transcript(store, session_id) == []


async def test_the_sending_session_gets_no_note_of_its_own_post(store: Store) -> None:
    session_id = await bound_session(store, ANN)
    await store.write(lambda tx: send_cross_post(tx, cross_post("a part of it", sender=session_id)))
    assert await transcript(store, session_id) == []
    assert await queued(store) == [("ann", "a part of it")]


async def test_files_of_a_cross_post_are_named_in_the_transcript(store: Store) -> None:
    content = Content(text="the plan", files=(File("/tmp/plan.pdf", "plan.pdf"),))
    sent = CrossPost(key="1", address=ANN, content=content, source="a test", at=NOON)
    await store.write(lambda tx: send_cross_post(tx, sent))
    found = await session_id_of(store, ANN)
    assert await transcript(store, found) == [("assistant", "the plan\n[sent plan.pdf]")]


async def test_cross_posts_of_several_processes_are_recorded_in_one_session(
    store_location: StoreLocation, clock: SettableClock, store: Store
) -> None:
    others = [store_location.open_store(clock, f"worker-{number}") for number in range(2, 5)]
    async with asyncio.TaskGroup() as group:
        for number, desk in enumerate([store, *others] * 3):
            group.create_task(send(desk, str(number)))
    for desk in others:
        await desk.close()
    session_id = await session_id_of(store, ANN)
    assert sorted(text for _, text in await transcript(store, session_id)) == sorted(map(str, range(12)))
    assert len(await queued(store)) == 12
