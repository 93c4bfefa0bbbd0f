"""A group that becomes a supergroup gets another id."""

from tests.platforms.telegram.far_side import settings_for

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.platforms.telegram.adapter import Telegram
from talaria.testing.platform_suite import next_incoming
from talaria.testing.telegram_server import TelegramServer


async def test_a_group_migration_is_reported_by_both_chats_with_the_old_id(
    server: TelegramServer, telegram: Telegram
) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    async with telegram.connect() as arrivals:
        large = server.world.upgrade(group, ann)
        await large.says(ann, "all there?", mention=True)
        migrations, message = [await next_incoming(arrivals) for _ in range(2)], await next_incoming(arrivals)
    assert {(one.formerly, one.address) for one in migrations} == {
        (str(group.id), Address("telegram", str(large.id), "group"))
    }
    assert [(one.text, one.addressed, one.chat_name) for one in migrations] == [("", False, "Family")] * 2
    assert (message.text, message.formerly, message.address.chat_id) == ("all there?", "", str(large.id))


async def test_message_to_a_migrated_group_is_sent_to_its_new_id(server: TelegramServer, telegram: Telegram) -> None:
    ann = server.user("Ann")
    group = server.group("Family", ann)
    large = server.world.upgrade(group, ann)
    ref = await telegram.send(Address("telegram", str(group.id), "group"), Content(text="Here."), "k")
    assert [one.text for one in large.answers] == ["Here."]
    assert group.answers == []
    assert ref.address.chat_id == str(large.id)


async def test_other_service_messages_are_not_reported_as_migrations(server: TelegramServer) -> None:
    platform = Telegram(settings_for(server))
    ann = server.user("Ann")
    forum = server.forum("Project", ann)
    async with platform.connect() as arrivals:
        await forum.opens_topic(ann, "Plans")
        await forum.says(ann, "well")
        assert (await next_incoming(arrivals)).text == "well"
    await platform.close()
