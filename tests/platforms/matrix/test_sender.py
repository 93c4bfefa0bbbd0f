"""Sending to a real homeserver: messages appear as intended, and each key is posted once."""

import asyncio
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from tests.platforms.matrix.matrix_clients import BotAccount, Person, create_shared_room

from talaria.contracts.platform import Attachment, Content
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected, SlowDown, Unreachable
from talaria.core.ids import new_id
from talaria.core.messages import File, Image
from talaria.platforms.matrix.outgoing import TEXT_LIMIT
from talaria.testing.homeserver import Homeserver, HomeserverClient
from talaria.testing.wait import until


def room_of(bot_account: BotAccount, alice: Person) -> str:
    room = alice.room_with(bot_account.user_id)
    Person(alice.homeserver_client, bot_account.account).join(room)
    return room


async def test_formatted_text_is_sent_with_its_plain_text(bot_account: BotAccount, alice: Person) -> None:
    room = room_of(bot_account, alice)
    ref = await bot_account.open().send(Address("matrix", room), Content(text="**bold** <b>no</b>"), "k")
    content = alice.event(room, ref.message_id)["content"]
    assert content["body"] == "**bold** <b>no</b>"
    assert content["formatted_body"] == "<p><strong>bold</strong> &lt;b&gt;no&lt;/b&gt;</p>"


async def test_same_key_posts_one_message_even_after_a_restart(
    bot_account: BotAccount, alice: Person, tmp_path: Path
) -> None:
    room = room_of(bot_account, alice)
    picture = tmp_path / "p.png"
    picture.write_bytes(b"not really")
    content = Content(text="once", files=(Image(str(picture)),))
    first = await bot_account.open().send(Address("matrix", room), content, "turn-1:0")
    again = await bot_account.open().send(Address("matrix", room), content, "turn-1:0")
    other = await bot_account.open().send(Address("matrix", room), Content(text="once"), "turn-1:1")
    assert first == again != other
    assert [one["content"]["body"] for one in alice.events(room)] == ["once", "p.png", "once"]


async def test_the_same_key_sent_many_times_at_once_posts_one_message(bot_account: BotAccount, alice: Person) -> None:
    room = room_of(bot_account, alice)
    platform = bot_account.open()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(platform.send(Address("matrix", room), Content(text="once"), "key")) for _ in range(10)
        ]
    assert len({task.result().message_id for task in tasks}) == 1
    assert len(alice.events(room)) == 1


async def test_an_edit_replaces_the_text(bot_account: BotAccount, alice: Person) -> None:
    room = room_of(bot_account, alice)
    platform = bot_account.open()
    ref = await platform.send(Address("matrix", room), Content(text="draft"), "k")
    await platform.edit(ref, Content(text="**final**"))
    edit = alice.events(room)[-1]["content"]
    assert edit["m.new_content"]["body"] == "**final**"
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": ref.message_id}
    assert alice.event(room, ref.message_id)["unsigned"]["m.relations"]["m.replace"]


async def test_reply_mentions_the_sender_of_the_original_message(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        event_id = alice.say(room, "well?")
        received = await recorder.one()
        ref = await recorder.platform.send(received.address, Content(text="yes", reply_to=event_id), "k")
    content = alice.event(room, ref.message_id)["content"]
    assert content["m.relates_to"] == {"m.in_reply_to": {"event_id": event_id}}
    assert content["m.mentions"] == {"user_ids": [alice.user_id]}


async def test_the_longest_texts_fit_into_one_event_and_into_one_edit(bot_account: BotAccount, alice: Person) -> None:
    texts = ["x" * TEXT_LIMIT, '"\n' * (TEXT_LIMIT // 2), "<" * TEXT_LIMIT, "ü" * (TEXT_LIMIT // 2)]
    room = room_of(bot_account, alice)
    platform = bot_account.open()
    for number, text in enumerate(texts):
        ref = await platform.send(Address("matrix", room), Content(text=text), f"k{number}")
        await platform.edit(ref, Content(text=text))
        first, edit = alice.events(room)[-2:]
        assert first["event_id"] == ref.message_id
        assert first["content"]["body"] == edit["content"]["m.new_content"]["body"] == text
    assert len(alice.events(room)) == 2 * len(texts)


async def test_typing_and_read_marks_are_shown(bot_account: BotAccount, alice: Person) -> None:
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        event_id = alice.say(room, "read this")
        await recorder.one()
        await recorder.platform.show_typing(Address("matrix", room))

        def shown() -> dict[str, object]:
            here = quote(msgspec.json.encode({"room": {"rooms": [room]}}).decode())
            around = alice.call("GET", f"/sync?timeout=0&filter={here}")["rooms"]["join"][room]["ephemeral"]["events"]
            return {one["type"]: one["content"] for one in around}

        await until(lambda: event_id in str(shown().get("m.receipt")))
        assert shown()["m.typing"] == {"user_ids": [bot_account.user_id]}


async def test_files_are_sent_and_downloaded_under_safe_names(
    bot_account: BotAccount, alice: Person, tmp_path: Path
) -> None:
    document = tmp_path / "plan.txt"
    document.write_text("step one")
    async with bot_account.listening() as recorder:
        room = await create_shared_room(bot_account, alice, recorder)
        file = File(str(document), "../plan?.txt", "text/plain")
        ref = await recorder.platform.send(Address("matrix", room), Content(files=(file,)), "k")
        sent = alice.event(room, ref.message_id)["content"]
        alice.post(room, {"msgtype": "m.file", "body": "../../evil\n.sh", "url": sent["url"], "info": sent["info"]})
        received = await recorder.one()
        folder = tmp_path / "media"
        paths = [await recorder.platform.fetch(received.attachments[0], folder) for _ in range(2)]
    assert (sent["msgtype"], sent["filename"]) == ("m.file", "plan_.txt")
    assert [path.name for path in paths] == ["evil_.sh", "evil_-2.sh"]
    assert {path.parent for path in paths} == {folder}
    assert paths[0].read_text() == "step one"


async def test_too_large_files_are_neither_sent_nor_downloaded(
    bot_account: BotAccount, alice: Person, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * 2000)
    room = room_of(bot_account, alice)
    to, content = Address("matrix", room), Content(files=(File(str(large), "large"),))
    ref = await bot_account.open().send(to, content, "k")
    url = alice.event(room, ref.message_id)["content"]["url"]
    small = bot_account.open(file_limit=1000)
    with pytest.raises(Rejected, match="1000 bytes"):
        await small.send(to, content, "k2")
    for size in (0, 2000):  # the size that the sender declares may be wrong
        with pytest.raises(Rejected, match="1000 bytes"):
            await small.fetch(Attachment(url, "document", "large", size=size), tmp_path / "media")
    assert not list((tmp_path / "media").glob("*"))


@pytest.mark.parametrize("reference", ["mxc://localhost/nothing", "https://localhost/x", "mxc://", "{", "{}"])
async def test_attachment_that_cannot_be_downloaded_is_refused(
    bot_account: BotAccount, tmp_path: Path, reference: str
) -> None:
    with pytest.raises(Rejected):
        await bot_account.open().fetch(Attachment(reference, "document"), tmp_path)


async def test_missing_local_file_is_refused(bot_account: BotAccount, alice: Person, tmp_path: Path) -> None:
    room = room_of(bot_account, alice)
    with pytest.raises(Rejected):
        await bot_account.open().send(Address("matrix", room), Content(files=(File(str(tmp_path / "gone"), "x"),)), "k")


async def test_sending_to_a_room_that_the_bot_has_not_joined_is_refused(bot_account: BotAccount, alice: Person) -> None:
    room = alice.room_with()
    with pytest.raises(Rejected):
        await bot_account.open().send(Address("matrix", room), Content(text="hello"), "k")
    assert await bot_account.open().create_handoff_thread(room, "name") is None


async def test_unencrypted_message_to_an_encrypted_room_is_refused(bot_account: BotAccount, alice: Person) -> None:
    encryption = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
    async with bot_account.listening() as recorder:
        room = alice.room_with(bot_account.user_id, initial_state=[encryption])
        await until(lambda: bot_account.user_id in alice.members(room))
        for platform in (recorder.platform, bot_account.open()):
            with pytest.raises(Rejected, match="encrypted"):
                await platform.send(Address("matrix", room), Content(text="secret"), "k")
    assert alice.events(room) == []


async def test_rate_limit_of_the_homeserver_is_reported_with_its_pause(
    bot_account: BotAccount, alice: Person, homeserver_client: HomeserverClient
) -> None:
    room = room_of(bot_account, alice)
    admin = homeserver_client.register(f"admin-{new_id()}".lower(), admin=True)
    path = f"/_synapse/admin/v1/users/{bot_account.user_id}/override_ratelimit"
    homeserver_client.call("POST", path, {"messages_per_second": 1, "burst_count": 0}, token=admin.token)
    with pytest.raises(SlowDown) as slow:
        await bot_account.open().send(Address("matrix", room), Content(text="quick"), "k")
    assert timedelta() < slow.value.retry_after < timedelta(seconds=10)


async def test_unknown_token_is_reported_as_bad_credentials(bot_account: BotAccount) -> None:
    with pytest.raises(BadCredentials):
        async with bot_account.open(token="made-up").connect():
            pass


async def test_stopped_homeserver_is_reported_as_unreachable(bot_account: BotAccount) -> None:
    platform = bot_account.open(homeserver="http://127.0.0.1:9")
    with pytest.raises(Unreachable):
        await platform.send(Address("matrix", "!r:localhost"), Content(text="x"), "k")


async def test_password_login_is_stored_and_reused(bot_account: BotAccount, alice: Person) -> None:
    by_password = {"token": "", "user": bot_account.user_id}
    room = room_of(bot_account, alice)
    to = Address("matrix", room)
    first = await bot_account.open(password=bot_account.account.password, **by_password).send(
        to, Content(text="x"), "k"
    )
    again = await bot_account.open(password="forgotten", **by_password).send(to, Content(text="x"), "k")
    assert first == again, "the same login, so the same message"
    assert (bot_account.folder / "login.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadCredentials):
        await bot_account.open(password="wrong", token="", user=alice.user_id).send(to, Content(text="x"), "k")


async def test_ended_login_is_replaced_with_the_password(bot_account: BotAccount, alice: Person) -> None:
    room = room_of(bot_account, alice)
    by_password = {"token": "", "user": bot_account.user_id, "password": bot_account.account.password}
    to = Address("matrix", room)
    await bot_account.open(**by_password).send(to, Content(text="one"), "1")
    Person(alice.homeserver_client, bot_account.account).call("POST", "/logout/all", {})
    await bot_account.open(**by_password).send(to, Content(text="two"), "2")
    assert [one["content"]["body"] for one in alice.events(room)] == ["one", "two"]


async def test_messages_are_sent_and_received_again_after_a_homeserver_restart(tmp_path: Path) -> None:
    with Homeserver() as server:
        client = server.homeserver_client
        alice = Person(client, client.register("alice"))
        bot_account = BotAccount(client, client.register("bot"), tmp_path, (alice.user_id,))
        async with bot_account.listening() as recorder:
            room = await create_shared_room(bot_account, alice, recorder)
        platform = bot_account.open()
        to = Address("matrix", room)
        before = await platform.send(to, Content(text="once"), "k")
        await asyncio.to_thread(server.stop)
        with pytest.raises(Unreachable):
            async with platform.connect() as arriving:
                await anext(arriving)
        with pytest.raises(Unreachable):
            await platform.send(to, Content(text="once"), "k")
        await asyncio.to_thread(server.start)
        assert await platform.send(to, Content(text="once"), "k") == before
        alice.say(room, "back?")
        async with bot_account.listening() as recorder:
            assert (await recorder.one()).text == "back?"
