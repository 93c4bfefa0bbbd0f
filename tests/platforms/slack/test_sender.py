"""Messages of the app in a workspace: blocks, files, reactions, threads and refusals."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.platforms.slack.far_side import settings_for

from talaria.contracts.platform import Attachment, Button, Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected, SlowDown, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.slack.adapter import Slack
from talaria.testing.slack_server import SlackServer, User

TABLE = "Figures:\n\n| a | b |\n|---|--:|\n| 1 |  |\n"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def write(path: Path) -> None:
    path.write_text("1,2")


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


@pytest.fixture
def home(server: SlackServer, ann: User) -> Address:
    return Address("slack", server.direct(ann).id)


async def test_markup_is_sent_as_blocks_and_as_mrkdwn(
    server: SlackServer, slack: Slack, ann: User, home: Address
) -> None:
    await slack.send(home, Content(text=f"**Now** <!channel> & `x < y`.\n\n{TABLE}"), "k")
    message = server.direct(ann).answers[0]
    assert message.text.startswith("*Now* &lt;!channel&gt; &amp; `x &lt; y`.")
    assert [one["type"] for one in message.blocks] == ["rich_text", "table"]
    assert message.blocks[0]["elements"][0]["elements"][1]["text"] == " <!channel> & "
    assert message.blocks[1]["rows"][1] == [{"type": "raw_text", "text": "1"}, {"type": "raw_text", "text": " "}]


async def test_message_disables_link_previews_and_contains_its_key(
    server: SlackServer, slack: Slack, home: Address
) -> None:
    await slack.send(home, Content(text="https://evil.example/?q=secret", reply_to="1.2"), "the key")
    parameters = server.calls[-1].parameters
    assert (parameters["unfurl_links"], parameters["unfurl_media"]) == (False, False)
    assert parameters["metadata"]["event_payload"] == {"key": "the key", "reply_to": "1.2"}


@pytest.mark.parametrize("error", ["invalid_blocks", "msg_blocks_too_long"])
async def test_refused_blocks_are_replaced_by_plain_text(
    server: SlackServer, slack: Slack, ann: User, home: Address, error: str
) -> None:
    content = Content(text="**Now** or never?", buttons=(Button("Now", "now"),))
    server.fail("chat.postMessage", error)
    ref = await slack.send(home, content, "k")
    assert server.direct(ann).answers[0].text == "**Now** or never?"
    server.fail("chat.update", error)
    await slack.edit(ref, content)
    message = server.direct(ann).answers[0]
    assert message.text == "**Now** or never?"
    assert [one["type"] for one in message.blocks] == ["section", "actions"]
    assert message.edits == 1


async def test_refused_table_is_drawn(server: SlackServer, slack: Slack, ann: User, home: Address) -> None:
    server.fail("chat.postMessage", "invalid_blocks")
    await slack.send(home, Content(text=f"**Now**\n\n{TABLE}"), "k")
    message = server.direct(ann).answers[0]
    assert [one["type"] for one in message.blocks] == ["rich_text"]
    assert message.blocks[0]["elements"][-1]["type"] == "rich_text_preformatted"


async def test_text_is_not_posted_again_if_its_file_failed(
    server: SlackServer, slack: Slack, ann: User, home: Address, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    write(path)
    content = Content(text="Here.", files=(File(str(path), "a.csv"),))
    server.fail("files.completeUploadExternal", "ratelimited", status=429, retry_after=1)
    with pytest.raises(SlowDown):
        await slack.send(home, content, "k")
    await slack.send(home, content, "k")
    answers = server.direct(ann).answers
    assert [(one.text, len(one.files)) for one in answers] == [("Here.", 0), ("", 1)]


async def test_edit_without_buttons_removes_them(server: SlackServer, slack: Slack, ann: User, home: Address) -> None:
    ref = await slack.send(home, Content(text="May I?", buttons=(Button("Yes", "y"),)), "k")
    await slack.edit(ref, Content(text="I did."))
    message = server.direct(ann).answers[0]
    assert (message.text, message.blocks) == ("I did.", [])


async def test_edit_of_a_message_of_another_author_is_refused(
    server: SlackServer, slack: Slack, ann: User, home: Address
) -> None:
    theirs = await server.direct(ann).says(ann, "mine")
    with pytest.raises(Rejected, match="cant_update_message"):
        await slack.edit(MessageRef(home, theirs.ts), Content(text="ours"))


@pytest.mark.parametrize(
    "buttons",
    [
        [Button("x", "v" * 2001)],
        [Button("x", "")],
        [Button(str(one), str(one)) for one in range(101)],
        [Button(str(one), f"{one}" * 151) for one in range(6)],
    ],
)
async def test_choices_beyond_the_limits_are_refused(slack: Slack, home: Address, buttons: list[Button]) -> None:
    with pytest.raises(Rejected):
        await slack.send(home, Content(text="Which?", buttons=tuple(buttons)), "k")


async def test_files_follow_their_text_in_the_thread(
    server: SlackServer, slack: Slack, ann: User, tmp_path: Path
) -> None:
    channel = server.channel("family", ann)
    root = await channel.says(ann, "figures?")
    (tmp_path / "a.csv").write_text("1,2")
    files = (File(str(tmp_path / "a.csv"), "a.csv"), Image(PIXEL))
    target = Address("slack", channel.id, "thread", root.ts)
    ref = await slack.send(target, Content(text="Here.", files=files), "k")
    alone = await slack.send(target, Content(files=files[:1]), "k2")
    shown = [(one.text, one.thread_ts, [file.name for file in one.files]) for one in channel.answers]
    assert shown == [
        ("Here.", root.ts, []),
        ("", root.ts, ["a.csv", "picture.png"]),
        ("", root.ts, ["a.csv"]),
    ]
    assert ref.message_id == channel.answers[0].ts
    assert alone.message_id.startswith("F")


async def test_message_to_a_user_id_is_sent_to_the_private_chat(
    server: SlackServer, slack: Slack, ann: User, home: Address
) -> None:
    ref = await slack.send(Address("slack", ann.id), Content(text="Psst."), "k")
    assert ref.address == home
    with pytest.raises(Rejected, match="user_not_found"):
        await slack.send(Address("slack", "U0NOBODY"), Content(text="Psst."), "k")


async def test_message_whose_answer_was_lost_is_not_posted_again(server: SlackServer, ann: User, home: Address) -> None:
    slack = Slack(settings_for(server, patience=timedelta(seconds=1)))
    channel = server.channel("family", ann)
    root = await channel.says(ann, "hello")
    for target in (home, Address("slack", channel.id, "thread", root.ts)):
        server.swallow("chat.postMessage")
        with pytest.raises(Unreachable):
            await slack.send(target, Content(text="Once."), "k")
        ref = await slack.send(target, Content(text="Once, mended."), "k")
        answers = server.direct(ann).answers if target == home else channel.answers
        assert [(one.text, one.ts) for one in answers] == [("Once, mended.", ref.message_id)]
    await slack.close()


async def test_rate_limit_applies_to_one_chat(server: SlackServer, slack: Slack, home: Address) -> None:
    server.fail("chat.postMessage", "ratelimited", status=429, retry_after=30)
    with pytest.raises(SlowDown) as slow:
        await slack.send(home, Content(text="x"), "k")
    assert (slow.value.retry_after, slow.value.everywhere) == (timedelta(seconds=30), False)
    server.fail("chat.update", "ratelimited", status=429)
    with pytest.raises(SlowDown) as slow:
        await slack.edit(MessageRef(home, "1.1"), Content(text="x"))
    assert (slow.value.retry_after, slow.value.everywhere) == (timedelta(seconds=5), False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [("internal_error", Unreachable), ("is_archived", Rejected), ("restricted_action", Rejected)],
)
async def test_each_error_raises_its_error_class(
    server: SlackServer, slack: Slack, home: Address, error: str, kind: type[Exception]
) -> None:
    server.fail("chat.postMessage", error)
    with pytest.raises(kind, match=error):
        await slack.send(home, Content(text="x"), "k")


async def test_missing_scope_is_named(server: SlackServer, slack: Slack, home: Address) -> None:
    server.missing = {"chat:write"}
    with pytest.raises(Rejected, match="chat:write"):
        await slack.send(home, Content(text="x"), "k")


async def test_unknown_emoji_is_replaced_by_eyes(server: SlackServer, slack: Slack, ann: User, home: Address) -> None:
    theirs = await server.direct(ann).says(ann, "look")
    await slack.react(MessageRef(home, theirs.ts), ":no_such_emoji:")
    assert list(theirs.reactions) == ["eyes"]
    await slack.react(MessageRef(home, theirs.ts), "")
    assert theirs.reactions == {}


async def test_reactions_are_set_without_the_scope_to_read_them(
    server: SlackServer, slack: Slack, ann: User, home: Address
) -> None:
    server.missing = {"reactions:read"}
    theirs = await server.direct(ann).says(ann, "look")
    for emoji in ("👀", "✅"):
        await slack.react(MessageRef(home, theirs.ts), emoji)
    assert list(theirs.reactions) == ["white_check_mark"]


async def test_reaction_of_another_worker_is_replaced(server: SlackServer, ann: User, home: Address) -> None:
    one, two = Slack(settings_for(server)), Slack(settings_for(server))
    theirs = await server.direct(ann).says(ann, "look")
    theirs.reactions["heart"] = [ann.id]
    await one.react(MessageRef(home, theirs.ts), "👀")
    await two.react(MessageRef(home, theirs.ts), "✅")
    assert theirs.reactions == {"heart": [ann.id], "white_check_mark": [server.world.bot.id]}
    for platform in (one, two):
        await platform.close()


async def test_handoff_thread_starts_with_a_message(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    thread = await slack.create_handoff_thread(channel.id, "Trip <to> *Rome*\nand back")
    assert thread == channel.answers[0].ts
    assert channel.answers[0].text == "Trip &lt;to&gt; _Rome_ and back"
    in_private = await slack.create_handoff_thread(server.direct(ann).id, "Trip")
    assert in_private == server.direct(ann).answers[0].ts


async def test_no_handoff_thread_is_created_without_permission(server: SlackServer, slack: Slack, ann: User) -> None:
    channel = server.channel("family", ann)
    server.fail("chat.postMessage", "restricted_action")
    assert await slack.create_handoff_thread(channel.id, "Trip") is None
    channel.remove_bot()
    assert await slack.create_handoff_thread(channel.id, "Trip") is None
    assert await slack.create_handoff_thread("C0GONE", "Trip") is None
    server.fail("chat.postMessage", status=503)
    with pytest.raises(Unreachable):
        await slack.create_handoff_thread(channel.id, "Trip")


async def test_typing_in_an_unavailable_channel_is_refused(
    server: SlackServer, slack: Slack, ann: User, home: Address
) -> None:
    channel = server.channel("family", ann)
    await slack.show_typing(Address("slack", channel.id, "group"))
    await slack.show_typing(home)
    other = server.channel("others", ann)
    other.remove_bot()
    for gone in (other.id, "C0GONE"):
        for thread in ("", "1.1"):
            with pytest.raises(Rejected):
                await slack.show_typing(Address("slack", gone, "group", thread))


@pytest.mark.parametrize(
    "url", ["https://evil.example/f", "http://files.slack.com/f", "https://slack.com.evil.example/"]
)
async def test_token_is_sent_to_slack_only(server: SlackServer, slack: Slack, tmp_path: Path, url: str) -> None:
    file = server.file("x", b"x")
    server.world.url, address = url, server.world.url
    with pytest.raises(Rejected, match="on Slack"):
        await slack.fetch(Attachment(file.id, "document", "x"), tmp_path)
    server.world.url = address


async def test_missing_oversized_or_unreadable_file_is_refused(
    server: SlackServer, slack: Slack, tmp_path: Path
) -> None:
    file = server.file("x.txt", b"x" * 2_000_000)
    for attachment in (
        Attachment("F0GONE", "document", "x"),
        Attachment(file.id, "document", "x", size=2_000_000),
        Attachment(file.id, "document", "x"),  # of unknown size
    ):
        with pytest.raises(Rejected):
            await slack.fetch(attachment, tmp_path)
    page = server.file("x.txt", b"<html>log in</html>", "text/html")
    with pytest.raises(Rejected, match="files:read"):
        await slack.fetch(Attachment(page.id, "document", "x", "text/plain"), tmp_path)
    assert is_empty(tmp_path)


async def test_concurrent_messages_are_all_sent(server: SlackServer, slack: Slack, ann: User, home: Address) -> None:
    await asyncio.gather(*(slack.send(home, Content(text=f"{one}"), f"k{one}") for one in range(30)))
    assert sorted(int(one.text) for one in server.direct(ann).answers) == list(range(30))
