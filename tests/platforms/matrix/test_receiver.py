"""Receiving from a real homeserver: messages arrive once, in order, and are not lost after a kill."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiohttp import web
from tests.platforms.matrix.matrix_clients import BotAccount, Json, Person, create_shared_room

from talaria.contracts.platform import Button, Content, Incoming, KnownChat, ListingPlatform
from talaria.core.addresses import Address
from talaria.core.errors import Unreachable
from talaria.testing.wait import until

MALFORMED: list[tuple[str, dict[str, object]]] = [
    ("m.room.message", {"msgtype": "m.image", "body": "x", "url": 3, "info": "none"}),
    ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "key": "x"}}),
    ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "event_id": 5, "key": "x"}}),
    ("m.sticker", {"body": None}),
]


async def test_message_in_a_direct_chat_is_private_and_addressed(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        event_id = alice.say(room, "hello")
        received = await recorder.one()
    assert received.text == "hello"
    assert received.address == Address("matrix", room, "private")
    assert (received.sender.id, received.external_id, received.message_id) == (alice.user_id, event_id, event_id)
    assert received.sender.name.startswith("alice-")
    assert received.addressed


async def test_joined_rooms_are_listed_with_their_names(bot_account: BotAccount, alice: Person, carol: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        alice.call("PUT", f"/rooms/{room}/state/m.room.name", {"name": "Workshop"})
        alice.say(room, "the bot: hello", **{"m.mentions": {"user_ids": [bot_account.user_id]}})
        await recorder.one()
        chats = await cast("ListingPlatform", recorder.platform).chats()
    assert KnownChat(Address("matrix", room, "group"), "Workshop") in chats


async def test_left_room_is_no_longer_listed(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        left, room = (
            await create_shared_room(bot_account, alice, recorder),
            await create_shared_room(bot_account, alice, recorder),
        )
        Person(alice.homeserver_client, bot_account.account).call("POST", f"/rooms/{left}/leave", {})
        alice.say(room, "next")
        await recorder.one()
        chats = await cast("ListingPlatform", recorder.platform).chats()
    assert [one.address.chat_id for one in chats] == [room]


async def test_only_messages_since_the_invitation_are_received(bot_account: BotAccount, alice: Person) -> None:
    room = alice.room_with()
    alice.say(room, "before you came")
    alice.call("POST", f"/rooms/{room}/invite", {"user_id": bot_account.user_id})
    alice.say(room, "are you there?")
    async with bot_account.listening() as recorder:
        await until(lambda: bot_account.user_id in alice.members(room))
        alice.say(room, "now you are")
        received = await recorder.next(2)
    assert [one.text for one in received] == ["are you there?", "now you are"]


async def test_invitation_of_a_stranger_is_not_accepted(bot_account: BotAccount, alice: Person, carol: Person) -> None:
    async with bot_account.listening() as recorder:
        strangers_room = carol.room_with(bot_account.user_id)
        await create_shared_room(bot_account, alice, recorder)
        assert bot_account.user_id not in carol.members(strangers_room)


async def test_only_mentions_and_replies_are_addressed_in_a_group(
    bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        ours = await recorder.platform.send(Address("matrix", room, "group"), Content(text="I am here"), "k")
        alice.say(room, "just talking", **{"m.mentions": {}})
        alice.say(room, "the bot: /status", **{"m.mentions": {"user_ids": [bot_account.user_id]}})
        answer = {"m.in_reply_to": {"event_id": ours.message_id}}
        carol.say(room, "> <@x:y> I am here\n\nindeed", **{"m.relates_to": answer, "m.mentions": {}})
        received = await recorder.next(3)
    assert [one.addressed for one in received] == [False, True, True]
    assert {one.address.chat_type for one in received} == {"group"}
    assert received[2].text == "indeed"
    assert received[2].reply_to == ours.message_id


async def test_thread_has_its_own_address(bot_account: BotAccount, alice: Person, carol: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        root = await recorder.platform.create_handoff_thread(room, "Moving house")
        assert root
        relation = {"rel_type": "m.thread", "event_id": root, "is_falling_back": True}
        alice.say(room, "on with it", **{"m.relates_to": relation, "m.mentions": {}})
        received = await recorder.one()
        await recorder.platform.send(received.address, Content(text="gladly"), "key")
        thread = alice.call("GET", f"/rooms/{room}/threads", version="v1")
    assert (received.address.chat_type, received.address.thread_id) == ("thread", root)
    assert received.addressed, "a thread that we began is about us"
    assert thread["chunk"][0]["event_id"] == root


async def test_edit_is_received_as_new_text_of_the_same_message(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        first = alice.say(room, "at sevn")
        await recorder.one()
        new = {"msgtype": "m.text", "body": "at seven"}
        relation = {"rel_type": "m.replace", "event_id": first}
        edit = alice.say(room, "* at seven", **{"m.new_content": new, "m.relates_to": relation})
        received = await recorder.one()
    assert received.edited
    assert (received.text, received.message_id, received.external_id) == ("at seven", first, edit)


async def test_a_reaction_presses_a_button(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        to = Address("matrix", room)
        buttons = (Button("Yes", "approve:1"), Button("No", "deny:1"))
        asked = await recorder.platform.send(to, Content(text="May I?", buttons=buttons), "question")
        shown = [one["content"]["m.relates_to"]["key"] for one in alice.events(room, "m.reaction")]
        for key in ("👍", "No"):
            relation = {"rel_type": "m.annotation", "event_id": asked.message_id, "key": key}
            alice.post(room, {"m.relates_to": relation}, "m.reaction")
        other, received = await recorder.next(2)
    assert shown == ["Yes", "No"]
    assert (other.button, other.reaction) == ("", "👍")
    assert received.reaction == ""
    assert (received.button, received.message_id, received.sender.id) == ("deny:1", asked.message_id, alice.user_id)


async def test_reaction_is_addressed_if_it_is_on_a_message_of_the_bot(
    bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        root = await recorder.platform.create_handoff_thread(room, "Moving house")
        assert root
        ours = await recorder.platform.send(Address("matrix", room, "thread", root), Content(text="Ready?"), "k")
        theirs = carol.say(room, "look", **{"m.mentions": {}})
        await recorder.one()
        for target, key in ((theirs, "😀"), (ours.message_id, "👍")):
            alice.post(room, annotation(target, key), "m.reaction")
        other, received = await recorder.next(2)
    assert (other.reaction, other.addressed, other.message_id) == ("😀", False, theirs)
    assert (received.reaction, received.addressed, received.message_id) == ("👍", True, ours.message_id)
    assert received.address == Address("matrix", room, "thread", root)
    assert received.sender.id == alice.user_id


def annotation(event_id: str, key: str) -> Json:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": key}}


async def test_own_messages_and_notices_of_bots_are_ignored(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        await recorder.platform.send(Address("matrix", room), Content(text="mine"), "k")
        alice.post(room, {"msgtype": "m.notice", "body": "beep"})
        alice.say(room, "me")
        assert (await recorder.one()).text == "me"


async def test_malformed_events_do_not_block_later_messages(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        for kind, content in MALFORMED:
            alice.post(room, content, kind)
        alice.say(room, "fine")
        received = await recorder.one()
        while received.text != "fine":
            received = await recorder.one()


async def test_unconfirmed_messages_are_redelivered_after_a_kill(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        alice.say(room, "first")
        await recorder.one()
    texts = [f"message {number}" for number in range(5)]
    for text in texts:
        alice.say(room, text)
    delivered = []
    async with bot_account.open().connect() as arriving:
        async for incoming in arriving:
            delivered.append(incoming.text)
            if incoming.text == texts[2]:
                break  # as if killed while processing this message
    redelivered = []
    async with bot_account.open().connect() as arriving:
        async for incoming in arriving:
            redelivered.append(incoming.text)
            if incoming.text == texts[-1]:
                break
    assert [text for text in delivered if text != "first"] == texts[:3]
    assert [text for text in redelivered if text != "first"] == texts


async def test_batch_is_confirmed_when_the_next_message_is_requested(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        alice.say(room, "one")
        await recorder.one()
    async with bot_account.open().connect() as arriving:
        alice.say(room, "two")
        while (await anext(arriving)).text != "two":
            pass
        before = list(bot_account.position.saved)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_next(arriving))
            await until(lambda: len(bot_account.position.saved) > len(before))
            alice.say(room, "three")
        assert waiting.result().text == "three"


async def _next(arriving: AsyncIterator[Incoming]) -> Incoming:
    return await anext(arriving)


async def test_more_messages_than_one_sync_returns_are_received_in_order(
    bot_account: BotAccount, alice: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
    texts = [f"number {number}" for number in range(60)]  # a sync returns 50
    for text in texts:
        alice.say(room, text)
    async with bot_account.listening() as recorder:
        received = await recorder.next(len(texts))
    assert [one.text for one in received] == texts


async def test_homeserver_whose_sync_position_never_changes_is_unreachable(bot_account: BotAccount) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/sync"):
            return web.json_response({"next_batch": "same"})
        return web.json_response({"user_id": bot_account.user_id, "device_id": "D", "displayname": "Bot"})

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        with pytest.raises(Unreachable, match="without making progress"):
            async with bot_account.open(homeserver=url).connect() as arriving:
                await anext(arriving)
    finally:
        await runner.cleanup()


async def test_a_sync_position_unknown_to_the_homeserver_is_dropped(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
    await bot_account.position.save(f"{bot_account.user_id} not-a-position")
    async with bot_account.open().connect() as arriving:
        alice.say(room, "hello again")
        assert (await anext(arriving)).text == "hello again"
