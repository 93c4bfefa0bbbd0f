"""The contract suite on Mattermost, and what only Mattermost has: channels, threads, edits and missed posts."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from talaria.contracts.platform import Button, Content, Platform
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.messages import File
from talaria.platforms.mattermost.adapter import Mattermost
from talaria.platforms.mattermost.settings import MattermostSettings, read_settings
from talaria.platforms.mattermost.setup import SETUP
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.mattermost_server import MattermostServer, mattermost_server
from talaria.testing.platform_suite import FailureKind, PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until

pytestmark = pytest.mark.one_engine
TOKEN = "token-of-the-tests"
FILE_LIMIT = 1024 * 1024


class MattermostFarSide:
    def __init__(self, server: MattermostServer, store: Store, endpoint: EndpointSettings | None = None) -> None:
        self.settings = MattermostSettings(
            server=server.url,
            token=TOKEN,
            endpoint=endpoint,
            file_limit=FILE_LIMIT,
            patience=timedelta(seconds=5),
            file_patience=timedelta(seconds=30),
            silence=timedelta(seconds=6),
        )
        self.adapter = Mattermost(self.settings, store, ["new", "help"])
        self.platform: Platform = self.adapter
        self.secret = TOKEN
        self.server = server
        self.ann = server.add_user("ann")
        self.direct = server.add_channel("D", self.ann)
        self.town = server.add_channel("O", self.ann, name="Town Square")
        self.root = server.publish(self.ann, self.town.id, "What a day!")["id"]
        self.private = Address("mattermost", self.direct.id)
        self.group: Address | None = Address("mattermost", self.town.id, "group")
        self.thread: Address | None = Address("mattermost", self.town.id, "thread", self.root)
        self.nowhere = Address("mattermost", "c" * 26)

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = "@talaria " if addressed and at.chat_type != "private" else ""
        self.server.publish(self.ann, at.chat_id, mention + text, root_id=at.thread_id)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        file_id = self.server.add_file(self.ann, at.chat_id, name, data)
        self.server.publish(self.ann, at.chat_id, "", file_ids=[file_id])

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        self.server.press(self.ann, message_id, label)

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        raise NotImplementedError

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one["id"],
                text=one["message"],
                buttons=tuple(
                    action["name"] for box in one["props"].get("attachments", ()) for action in box["actions"]
                ),
                files=tuple(file["name"] for file in one["metadata"].get("files", ())),
            )
            for one in self.server.posts.values()
            if (one["user_id"], one["channel_id"], one["root_id"]) == (self.server.bot, at.chat_id, at.thread_id)
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        if failure == "cut":
            self.server.hang_up()
        else:
            self.server.failure = failure
        return True

    async def calm(self) -> None:
        self.server.failure = None


@pytest.fixture
async def far_side(store: Store) -> AsyncIterator[MattermostFarSide]:
    async with mattermost_server(TOKEN, file_limit=FILE_LIMIT) as server:
        there = MattermostFarSide(server, store)
        try:
            yield there
        finally:
            await there.adapter.close()


@pytest.fixture
async def reachable_side(store: Store) -> AsyncIterator[MattermostFarSide]:
    port = free_port()
    endpoint = EndpointSettings(public_url=f"http://127.0.0.1:{port}/mattermost", port=port)
    async with mattermost_server(TOKEN, file_limit=FILE_LIMIT) as server:
        there = MattermostFarSide(server, store, endpoint)
        try:
            yield there
        finally:
            await there.adapter.close()


class TestMattermost(PlatformSuite, lacks={"reactions", "idempotent", "buttons", "redelivery"}):
    pass


class TestReachableMattermost(PlatformSuite, lacks={"reactions", "idempotent", "redelivery"}):
    @pytest.fixture
    def far_side(self, reachable_side: MattermostFarSide) -> MattermostFarSide:
        return reachable_side


async def test_repeated_press_has_one_external_id(reachable_side: MattermostFarSide) -> None:
    server, town = reachable_side.server, Address("mattermost", reachable_side.town.id, "group")
    async with reachable_side.platform.connect() as arrivals:
        question = Content(text="May I?", buttons=(Button("Yes", "approve:7"), Button("No", "deny:7")))
        ref = await reachable_side.platform.send(town, question, "ask")
        for _ in range(2):
            server.press(reachable_side.ann, ref.message_id, "Yes")
        pressed = [await next_incoming(arrivals) for _ in range(2)]
        await reachable_side.says(town, "bye")
        await next_incoming(arrivals)
        await until(lambda: len(server.answers) == 2)
    assert len({one.external_id for one in pressed}) == 1
    assert (pressed[0].button, pressed[0].address, pressed[0].sender.name) == ("approve:7", town, "ann")
    assert [(one.status, one.body) for one in server.answers] == [(200, b"{}")] * 2
    assert TOKEN not in str(server.posts)


@pytest.mark.parametrize("forged", ["value", "channel", "root", "nonce", "signature", "post"])
async def test_forged_press_is_refused(reachable_side: MattermostFarSide, forged: str) -> None:
    server = reachable_side.server
    async with reachable_side.platform.connect():
        question = Content(text="May I?", buttons=(Button("No", "deny:7"),))
        ref = await reachable_side.platform.send(reachable_side.private, question, "ask")
        context = server.posts[ref.message_id]["props"]["attachments"][0]["actions"][0]["integration"]["context"]
        if forged == "post":
            server.press(reachable_side.ann, ref.message_id, "No", channel_id=reachable_side.town.id)
        else:
            server.press(reachable_side.ann, ref.message_id, "No", context=context | {forged: "approve:7"})
        await until(lambda: bool(server.answers))
    assert server.answers[0].status == 401


async def test_slash_command_is_registered_and_read(reachable_side: MattermostFarSide) -> None:
    server, ann = reachable_side.server, reachable_side.ann
    async with reachable_side.platform.connect() as arrivals:
        (command,) = server.commands.values()
        assert (command["trigger"], command["url"]) == ("talaria", server_url(reachable_side))
        for text in ("new topic", "what time is it?", ""):
            server.run_command(ann, reachable_side.town.id, text)
        received = {(await next_incoming(arrivals)).text for _ in range(3)}
        server.run_command(ann, reachable_side.direct.id, "/new", token="forged")
        await until(lambda: any(one.status == 401 for one in server.answers))
        far_away = server.add_channel("O", ann, name="Far away")
        far_away.members.remove(server.bot)
        server.run_command(ann, far_away.id, "new")
        await until(lambda: any(b"Add me to this channel first" in one.body for one in server.answers))
    assert received == {"/new topic", "what time is it?", "/help"}


async def test_slash_command_is_registered_once_and_follows_the_address(reachable_side: MattermostFarSide) -> None:
    server = reachable_side.server
    for _ in range(2):
        async with reachable_side.platform.connect():
            pass
    (command,) = server.commands.values()
    server.commands[command["id"]] = command | {"url": "https://old.example.org"}
    async with reachable_side.platform.connect():
        pass
    assert [one["url"] for one in server.commands.values()] == [server_url(reachable_side)]


async def test_account_without_the_right_to_register_uses_the_token_of_a_command(
    reachable_side: MattermostFarSide, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    server = reachable_side.server
    by_hand = {"id": "k", "trigger": "talaria", "url": server_url(reachable_side), "token": "by-hand"}
    server.commands["k"] = by_hand
    server.may_manage_commands = False
    async with reachable_side.platform.connect():
        assert "store its token as MATTERMOST_COMMAND_TOKEN" in caplog.text
    other = Mattermost(structs.replace(reachable_side.settings, command_tokens=("by-hand",)), store, ["new"])
    async with other.connect() as arrivals:
        server.run_command(reachable_side.ann, reachable_side.direct.id, "new")
        assert (await next_incoming(arrivals)).text == "/new"
    await other.close()


def server_url(there: MattermostFarSide) -> str:
    assert there.settings.endpoint
    return there.settings.endpoint.public_url


def test_setup_asks_for_an_optional_address() -> None:
    *_, url, port = SETUP.questions
    assert (url.name, url.required, port.only_with) == ("public_url", False, "public_url")
    assert url.problem
    assert "must start with http" in url.problem("bot.example.org")
    assert SETUP.doctor
    assert SETUP.doctor(NetworkTrial({"MATTERMOST_URL": "https://chat.example.org"}, {"public_url": "x"}))
    assert not SETUP.doctor(NetworkTrial({"MATTERMOST_URL": "https://chat.example.org"}, {"port": "1"}))


async def test_first_connection_ignores_older_posts(far_side: MattermostFarSide) -> None:
    await far_side.says(far_side.private, "from last week")
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "from now")
        assert (await next_incoming(arrivals)).text == "from now"


async def test_missed_posts_of_all_channels_are_read_in_their_order(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect():
        pass
    assert far_side.group
    assert far_side.thread
    await far_side.says(far_side.private, "one")
    await far_side.says(far_side.group, "two")
    await far_side.says(far_side.thread, "three")
    new_channel = far_side.server.add_channel("P", far_side.ann, name="Plans")
    await far_side.says(Address("mattermost", new_channel.id, "group"), "four")
    async with far_side.platform.connect() as arrivals:
        missed = [await next_incoming(arrivals) for _ in range(4)]
    assert [one.text for one in missed] == ["one", "two", "three", "four"]
    assert [one.chat_name for one in missed] == ["ann", "Town Square", "Town Square", "Plans"]


async def test_confirmed_posts_are_not_read_again_after_a_reconnect(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        for text in ("one", "two"):
            await far_side.says(far_side.private, text)
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["one", "two"]
        await far_side.says(far_side.private, "three")
        await next_incoming(arrivals)
    async with far_side.platform.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "three"


async def test_edit_is_reported_as_the_same_message(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "helo")
        first = await next_incoming(arrivals)
        far_side.server.change(first.message_id, "hello")
        second = await next_incoming(arrivals)
    assert (second.text, second.edited, second.message_id) == ("hello", True, first.message_id)
    assert second.external_id != first.external_id


async def test_thread_below_our_post_is_addressed_to_us(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        assert far_side.group
        ours = await far_side.platform.send(far_side.group, Content(text="Good morning."), "key")
        below = Address("mattermost", far_side.town.id, "thread", ours.message_id)
        await far_side.says(below, "and to you", addressed=False)
        assert far_side.thread
        await far_side.says(far_side.thread, "not for you", addressed=False)
        received = [await next_incoming(arrivals) for _ in range(2)]
    assert [(one.text, one.addressed) for one in received] == [("and to you", True), ("not for you", False)]


@pytest.mark.parametrize(
    ("text", "addressed"),
    [("hey @talaria, look", True), ("@Talaria: look", True), ("@talaria.two look", False), ("a@talaria", False)],
)
async def test_mention_is_recognised(far_side: MattermostFarSide, text: str, addressed: bool) -> None:
    async with far_side.platform.connect() as arrivals:
        assert far_side.group
        await far_side.says(far_side.group, text, addressed=False)
        assert (await next_incoming(arrivals)).addressed is addressed


async def test_commands_are_typed_after_a_mention_or_with_an_exclamation_mark(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        assert far_side.group
        await far_side.says(far_side.group, "/new topic")
        await far_side.says(far_side.private, "!help")
        assert [(await next_incoming(arrivals)).text for _ in range(2)] == ["/new topic", "/help"]


async def test_more_than_five_files_are_spread_over_posts(far_side: MattermostFarSide, tmp_path: Path) -> None:
    files = []
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("x")
        files.append(File(str(tmp_path / f"{number}.txt"), f"{number}.txt"))
    await far_side.platform.send(far_side.private, Content(text="All of them.", files=tuple(files)), "key")
    seen = await far_side.seen(far_side.private)
    assert [(one.text, len(one.files)) for one in seen] == [("All of them.", 5), ("", 2)]


async def test_posts_of_the_server_and_our_own_are_ignored(far_side: MattermostFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.publish(far_side.ann, far_side.town.id, "ann joined", type="system_join_channel")
        await far_side.platform.send(far_side.private, Content(text="ours"), "key")
        await far_side.says(far_side.private, "hers")
        assert (await next_incoming(arrivals)).text == "hers"


@pytest.mark.parametrize(
    ("server", "options", "problem"),
    [
        ("chat.example.org", {}, "MATTERMOST_URL must be"),
        ("https://chat.example.org", {"file_limit": "-1"}, "file_limit"),
        ("https://chat.example.org", {"tean": "x"}, "unknown field `tean`"),
    ],
)
def test_invalid_settings_are_named(server: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        read_settings("mattermost", options, server, TOKEN)
