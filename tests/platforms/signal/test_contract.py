"""The contract suite on Signal, and what only Signal has: quotes, mentions, edits, timers and the Unix socket."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from talaria.contracts.platform import Content, Platform
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Unreachable
from talaria.platforms.signal.adapter import Signal
from talaria.platforms.signal.settings import SignalSettings, read_settings
from talaria.platforms.signal.setup import SETUP
from talaria.testing.platform_suite import FailureKind, PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.signal_daemon import SignalDaemon, signal_daemon

pytestmark = pytest.mark.one_engine
ACCOUNT = "+4915100000001"
ANN = "0a1b2c3d-0000-4000-8000-000000000001"
GROUP = "Z3JvdXAgb2YgdGhlIHRlc3Rz"
FILE_LIMIT = 1024 * 1024


class SignalFarSide:
    def __init__(self, daemon: SignalDaemon, store: Store) -> None:
        host, _, port = daemon.address.rpartition(":")
        self.settings = SignalSettings(
            account=ACCOUNT,
            host=host,
            port=int(port),
            file_limit=FILE_LIMIT,
            patience=timedelta(seconds=5),
            file_patience=timedelta(seconds=30),
            silence=timedelta(seconds=6),
        )
        self.adapter = Signal(self.settings, store)
        self.platform: Platform = self.adapter
        self.secret = ACCOUNT
        self.daemon = daemon
        self.private = Address("signal", ANN)
        self.group: Address | None = Address("signal", GROUP, "group")
        self.thread: Address | None = None
        self.nowhere = Address("signal", "0a1b2c3d-0000-4000-8000-00000000ffff")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        if at.chat_type == "private":
            self.daemon.deliver(ANN, message=text)
        elif addressed:
            mention = {"name": ACCOUNT, "number": ACCOUNT, "uuid": "", "start": 0, "length": 1}
            self.daemon.deliver(ANN, group=GROUP, message=f"\ufffc {text}", mentions=[mention])
        else:
            self.daemon.deliver(ANN, group=GROUP, message=text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        file_id = self.daemon.add_file(data)
        file = {"id": file_id, "contentType": "application/octet-stream", "filename": name, "size": len(data)}
        self.daemon.deliver(ANN, attachments=[file])

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        author, _, timestamp = message_id.rpartition(":")
        reaction = {"emoji": emoji, "targetAuthor": author, "targetAuthorNumber": author, "targetAuthorUuid": "",
                    "targetSentTimestamp": int(timestamp), "isRemove": False}  # fmt: skip
        self.daemon.deliver(ANN, reaction=reaction)

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        author, _, timestamp = message_id.rpartition(":")
        found = self.daemon.reactions.get((author, int(timestamp)))
        return [found] if found else []

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(message_id=f"{ACCOUNT}:{one.timestamp}", text=one.text, reply_to=one.quote, files=one.files)
            for one in self.daemon.sent
            if one.chat == at.chat_id
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        if failure == "cut":
            self.daemon.hang_up()
        else:
            self.daemon.failure = failure
        return True

    async def calm(self) -> None:
        self.daemon.calm()


@pytest.fixture
async def far_side(store: Store) -> AsyncIterator[SignalFarSide]:
    async with signal_daemon(ACCOUNT, frozenset({ANN}), frozenset({GROUP})) as daemon:
        there = SignalFarSide(daemon, store)
        try:
            yield there
        finally:
            await there.adapter.close()


class TestSignal(PlatformSuite, lacks={"servers", "redelivery", "idempotent", "edits", "buttons", "threads"}):
    pass


async def test_edit_is_reported_as_the_same_message(far_side: SignalFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        sent = far_side.daemon.deliver(ANN, message="helo")
        first = await next_incoming(arrivals)
        far_side.daemon.deliver(ANN, message="hello", edits=sent)
        second = await next_incoming(arrivals)
    assert (second.text, second.edited, second.message_id) == ("hello", True, first.message_id)
    assert second.external_id != first.external_id


async def test_quote_of_our_message_in_a_group_is_addressed_to_us(far_side: SignalFarSide) -> None:
    assert far_side.group
    ours = await far_side.platform.send(far_side.group, Content(text="Good morning."), "key")
    time = int(ours.message_id.rpartition(":")[2])
    quote = {"id": time, "author": ACCOUNT, "authorNumber": ACCOUNT, "authorUuid": "", "text": "Good morning."}
    async with far_side.platform.connect() as arrivals:
        far_side.daemon.deliver(ANN, group=GROUP, message="and to you", quote=quote)
        received = await next_incoming(arrivals)
    assert (received.addressed, received.reply_to, received.chat_name) == (True, ours.message_id, "Garden")


async def test_mentions_are_cut_out_by_utf16_units(far_side: SignalFarSide) -> None:
    other = {"name": "Bob", "number": "+15550001", "uuid": "b", "start": 5, "length": 1}
    ours = {"name": ACCOUNT, "number": ACCOUNT, "uuid": "", "start": 0, "length": 1}
    async with far_side.platform.connect() as arrivals:
        far_side.daemon.deliver(ANN, group=GROUP, message="\ufffc 😀 \ufffc!", mentions=[ours, other])
        received = await next_incoming(arrivals)
    assert (received.text, received.addressed) == ("😀 @+15550001!", True)


async def test_message_with_a_timer_is_ignored_and_explained_once(far_side: SignalFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        for text in ("secret", "more"):
            far_side.daemon.deliver(ANN, message=text, expiresInSeconds=60)
        far_side.daemon.deliver(ANN, message="public")
        assert (await next_incoming(arrivals)).text == "public"
    (explained,) = far_side.daemon.sent
    assert "Messages disappear in this chat" in explained.text


async def test_message_with_a_timer_is_received_if_the_settings_allow_it(far_side: SignalFarSide, store: Store) -> None:
    platform = Signal(msgspec.structs.replace(far_side.settings, disappearing="answer"), store)
    async with platform.connect() as arrivals:
        far_side.daemon.deliver(ANN, message="secret", expiresInSeconds=60)
        assert (await next_incoming(arrivals)).text == "secret"


async def test_view_once_files_receipts_and_other_accounts_are_ignored(far_side: SignalFarSide) -> None:
    file = {"id": far_side.daemon.add_file(b"x"), "contentType": "image/png", "filename": None, "size": 1}
    async with far_side.platform.connect() as arrivals:
        far_side.daemon.deliver(ANN, message="look", attachments=[file], viewOnce=True)
        far_side.daemon.account = "+4915100000009"
        far_side.daemon.deliver(ANN, message="for somebody else")
        far_side.daemon.account = ACCOUNT
        far_side.daemon.deliver(ANN, message=None)
        far_side.daemon.deliver(ANN, message="end")
        received = [await next_incoming(arrivals) for _ in range(2)]
    assert [(one.text, one.attachments) for one in received] == [("look", ()), ("end", ())]


async def test_unix_socket_of_the_daemon_is_used(far_side: SignalFarSide, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "signal.sock"
    server = await asyncio.start_unix_server(far_side.daemon.serve, path)
    platform = Signal(read_settings("signal", {}, f"unix:{path}", ACCOUNT), store)
    await platform.send(far_side.private, Content(text="hello"), "key")
    await platform.close()
    server.close()
    await server.wait_closed()
    assert [one.text for one in far_side.daemon.sent] == ["hello"]


async def test_missing_daemon_is_reported_with_its_address(store: Store, tmp_path: Path) -> None:
    platform = Signal(read_settings("signal", {}, f"unix:{tmp_path / 'nothing'}", ACCOUNT), store)
    with pytest.raises(Unreachable, match="can't be reached at"):
        await platform.send(Address("signal", ANN), Content(text="hello"), "key")


async def try_account(**secrets: str) -> tuple[str, str]:
    (question,) = [one for one in SETUP.questions if one.check]
    assert question.check
    result = await question.check(NetworkTrial(secrets))
    return result.outcome, result.sentence


async def test_setup_checks_the_number_without_consuming_messages(far_side: SignalFarSide) -> None:
    far_side.daemon.deliver(ANN, message="hello")
    address = far_side.daemon.address
    assert await try_account(SIGNAL_DAEMON=address, SIGNAL_ACCOUNT=ACCOUNT) == (
        "right", "signal-cli 0.13.19 has the number."
    )  # fmt: skip
    assert (await try_account(SIGNAL_DAEMON=address, SIGNAL_ACCOUNT="+4915100000002"))[0] == "refused"
    async with far_side.platform.connect() as arrivals:
        assert (await next_incoming(arrivals)).text == "hello"


async def test_setup_reports_a_missing_daemon(tmp_path: Path) -> None:
    outcome, sentence = await try_account(SIGNAL_DAEMON=f"unix:{tmp_path / 'nothing'}", SIGNAL_ACCOUNT=ACCOUNT)
    assert (outcome, sentence.endswith("Is the daemon running?")) == ("unreachable", True)


@pytest.mark.parametrize(
    ("daemon", "account", "options", "problem"),
    [
        ("127.0.0.1", ACCOUNT, {}, "SIGNAL_DAEMON must be"),
        ("unix:", ACCOUNT, {}, "SIGNAL_DAEMON must be"),
        ("127.0.0.1:7583", "0151", {}, "SIGNAL_ACCOUNT must be"),
        ("127.0.0.1:7583", ACCOUNT, {"disappearing": "maybe"}, "disappearing"),
        ("127.0.0.1:7583", ACCOUNT, {"prot": "1"}, "unknown field"),
    ],
)
def test_invalid_settings_are_named(daemon: str, account: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        read_settings("signal", options, daemon, account)
