"""What people do on a real homeserver arrives: once, in order, and nothing is lost when we are killed."""

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

STRANGE: list[tuple[str, dict[str, object]]] = [
    ("m.room.message", {"msgtype": "m.image", "body": "x", "url": 3, "info": "none"}),
    ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "key": "x"}}),
    ("m.reaction", {"m.relates_to": {"rel_type": "m.annotation", "event_id": 5, "key": "x"}}),
    ("m.sticker", {"body": None}),
]


async def test_a_direct_chat_is_private_and_meant_for_us(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        said = alice.say(room, "hello")
        heard = await recorder.one()
    assert heard.text == "hello"
    assert heard.address == Address("matrix", room, "private")
    assert (heard.sender.id, heard.external_id, heard.message_id) == (alice.user_id, said, said)
    assert heard.sender.name.startswith("alice-")
    assert heard.addressed


async def test_the_rooms_in_which_we_are_are_known_by_name(
    bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        alice.call("PUT", f"/rooms/{room}/state/m.room.name", {"name": "Workshop"})
        alice.say(room, "the bot: hello", **{"m.mentions": {"user_ids": [bot_account.user_id]}})
        await recorder.one()
        chats = await cast("ListingPlatform", recorder.platform).chats()
    assert KnownChat(Address("matrix", room, "group"), "Workshop") in chats


async def test_a_room_that_we_left_is_no_longer_listed(bot_account: BotAccount, alice: Person) -> None:
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


async def test_what_was_said_between_invitation_and_joining_is_heard_but_not_what_was_said_before(
    bot_account: BotAccount, alice: Person
) -> None:
    room = alice.room_with()
    alice.say(room, "before you came")
    alice.call("POST", f"/rooms/{room}/invite", {"user_id": bot_account.user_id})
    alice.say(room, "are you there?")
    async with bot_account.listening() as recorder:
        await until(lambda: bot_account.user_id in alice.members(room))
        alice.say(room, "now you are")
        heard = await recorder.next(2)
    assert [one.text for one in heard] == ["are you there?", "now you are"]


async def test_invitations_of_strangers_are_left_alone(bot_account: BotAccount, alice: Person, carol: Person) -> None:
    async with bot_account.listening() as recorder:
        strange = carol.room_with(bot_account.user_id)
        await create_shared_room(bot_account, alice, recorder)
        assert bot_account.user_id not in carol.members(strange)


async def test_in_a_group_only_mentions_and_answers_are_meant_for_us(
    bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        ours = await recorder.platform.send(Address("matrix", room, "group"), Content(text="I am here"), "k")
        alice.say(room, "just talking", **{"m.mentions": {}})
        alice.say(room, "the bot: /status", **{"m.mentions": {"user_ids": [bot_account.user_id]}})
        answer = {"m.in_reply_to": {"event_id": ours.message_id}}
        carol.say(room, "> <@x:y> I am here\n\nindeed", **{"m.relates_to": answer, "m.mentions": {}})
        heard = await recorder.next(3)
    assert [one.addressed for one in heard] == [False, True, True]
    assert {one.address.chat_type for one in heard} == {"group"}
    assert heard[2].text == "indeed"
    assert heard[2].reply_to == ours.message_id


async def test_a_thread_has_an_address_of_its_own(bot_account: BotAccount, alice: Person, carol: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        seed = await recorder.platform.create_handoff_thread(room, "Moving house")
        assert seed
        relation = {"rel_type": "m.thread", "event_id": seed, "is_falling_back": True}
        alice.say(room, "on with it", **{"m.relates_to": relation, "m.mentions": {}})
        heard = await recorder.one()
        await recorder.platform.send(heard.address, Content(text="gladly"), "key")
        thread = alice.call("GET", f"/rooms/{room}/threads", version="v1")
    assert (heard.address.chat_type, heard.address.thread_id) == ("thread", seed)
    assert heard.addressed, "a thread that we began is about us"
    assert thread["chunk"][0]["event_id"] == seed


async def test_an_edit_is_the_new_text_of_the_same_message(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        first = alice.say(room, "at sevn")
        await recorder.one()
        new = {"msgtype": "m.text", "body": "at seven"}
        relation = {"rel_type": "m.replace", "event_id": first}
        edit = alice.say(room, "* at seven", **{"m.new_content": new, "m.relates_to": relation})
        heard = await recorder.one()
    assert heard.edited
    assert (heard.text, heard.message_id, heard.external_id) == ("at seven", first, edit)


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
        aside, heard = await recorder.next(2)
    assert shown == ["Yes", "No"]
    assert (aside.button, aside.reaction) == ("", "👍")
    assert heard.reaction == ""
    assert (heard.button, heard.message_id, heard.sender.id) == ("deny:1", asked.message_id, alice.user_id)


async def test_a_mark_is_meant_for_us_where_it_is_on_a_message_of_ours(
    bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder, carol)
        seed = await recorder.platform.create_handoff_thread(room, "Moving house")
        assert seed
        ours = await recorder.platform.send(Address("matrix", room, "thread", seed), Content(text="Ready?"), "k")
        theirs = carol.say(room, "look", **{"m.mentions": {}})
        await recorder.one()
        for target, key in ((theirs, "😀"), (ours.message_id, "👍")):
            alice.post(room, mark(target, key), "m.reaction")
        aside, heard = await recorder.next(2)
    assert (aside.reaction, aside.addressed, aside.message_id) == ("😀", False, theirs)
    assert (heard.reaction, heard.addressed, heard.message_id) == ("👍", True, ours.message_id)
    assert heard.address == Address("matrix", room, "thread", seed)
    assert heard.sender.id == alice.user_id


def mark(event_id: str, key: str) -> Json:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": key}}


async def test_own_messages_and_notices_of_bots_are_not_heard(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        await recorder.platform.send(Address("matrix", room), Content(text="mine"), "k")
        alice.post(room, {"msgtype": "m.notice", "body": "beep"})
        alice.say(room, "me")
        assert (await recorder.one()).text == "me"


async def test_strange_contents_disturb_nobody(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        for kind, content in STRANGE:
            alice.post(room, content, kind)
        alice.say(room, "fine")
        heard = await recorder.one()
        while heard.text != "fine":
            heard = await recorder.one()


async def test_what_was_not_taken_comes_again_after_a_kill(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        alice.say(room, "first")
        await recorder.one()
    texts = [f"message {number}" for number in range(5)]
    for text in texts:
        alice.say(room, text)
    taken = []
    async with bot_account.open().connect() as arriving:
        async for incoming in arriving:
            taken.append(incoming.text)
            if incoming.text == texts[2]:
                break  # as if killed while working on it
    again = []
    async with bot_account.open().connect() as arriving:
        async for incoming in arriving:
            again.append(incoming.text)
            if incoming.text == texts[-1]:
                break
    assert [text for text in taken if text != "first"] == texts[:3]
    assert [text for text in again if text != "first"] == texts


async def test_a_batch_is_confirmed_only_when_more_is_asked_for(bot_account: BotAccount, alice: Person) -> None:
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


async def test_more_messages_than_a_sync_returns_all_come_in_order(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
    texts = [f"number {number}" for number in range(60)]  # a sync returns 50
    for text in texts:
        alice.say(room, text)
    async with bot_account.listening() as recorder:
        heard = await recorder.next(len(texts))
    assert [one.text for one in heard] == texts


async def test_a_homeserver_that_answers_at_once_and_never_moves_is_given_up(bot_account: BotAccount) -> None:
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
        there = f"http://127.0.0.1:{runner.addresses[0][1]}"
        with pytest.raises(Unreachable, match="without making progress"):
            async with bot_account.open(homeserver=there).connect() as arriving:
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
