"""The contract suite for chat networks: what every adapter has to do, as tests.

Derive a class whose name starts with ``Test`` from `PlatformSuite`, with a fixture ``far_side`` for the other end of
your network: its people, what they see, and its faults. Name what the network doesn't have, and the tests of it are not
collected: ``class TestPager(PlatformSuite, lacks={"edits", "threads"})``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from talaria.contracts.platform import (
    Button,
    Content,
    Incoming,
    MarkingPlatform,
    MessageRef,
    PlatformCapabilities,
)
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected, SlowDown, Unreachable
from talaria.core.messages import File
from talaria.testing.far_side import FailureKind, FarSide, Feature, SelectedTests, VisibleMessage, needs
from talaria.testing.wait import LIMIT

__all__ = [
    "ChatsSuite",
    "FailureKind",
    "FailuresSuite",
    "FarSide",
    "Feature",
    "FilesSuite",
    "PlatformSuite",
    "ReactionsSuite",
    "ReceivingSuite",
    "SendingSuite",
    "VisibleMessage",
    "arrival",
    "measure",
    "next_incoming",
]

_PATIENCE = LIMIT
_TRICKY_TEXTS = (
    "word *unclosed", "**word", "`word", "```\nword", "[word](", "[word](x", "_word*_", "> word\n>", "# word #",
    "word & <b>", "word\\", "| word |\n|---|", "word | a\n--|--\n1", "1. word\n   - x\n\n  y", "{word} %s $1 \\1",
    "word 👩‍👩‍👧 e\u0301 日本 \u202ertl", "word\r\nline\ttab", "word \ud83d half", "word \x00\x07 control", "~~word~",
    "![word]()", "<https://word.example", "\u200bword",
)  # fmt: skip


class ReceivingSuite(SelectedTests):
    """Tests of receiving: all updates arrive in order, and each is confirmed when the next one is requested."""

    async def test_private_message_is_received(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "Good morning, 👩‍👩‍👧")
            incoming = await next_incoming(arrivals)
        assert incoming.text == "Good morning, 👩‍👩‍👧"
        assert incoming.addressed
        assert not incoming.edited
        assert _make_chat_key(incoming.address) == _make_chat_key(far_side.private)
        assert incoming.address.platform == far_side.platform.name
        assert all([incoming.external_id, incoming.message_id, incoming.sender.id, incoming.sender.name])
        assert abs(datetime.now(UTC) - incoming.at) < timedelta(minutes=5)

    async def test_reply_appears_in_the_chat_of_the_question(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "Are you there?")
            asked = await next_incoming(arrivals)
            answer = Content(text="I am.", reply_to=asked.message_id)
            ref = await far_side.platform.send(asked.address, answer, "answer")
        seen = await far_side.seen(far_side.private)
        shown = asked.message_id if far_side.platform.abilities.replies else ""
        assert [(one.text, one.message_id, one.reply_to) for one in seen] == [("I am.", ref.message_id, shown)]

    async def test_messages_are_received_in_order(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            for number in range(20):
                await far_side.says(far_side.private, f"number {number}")
            arrived = [await next_incoming(arrivals) for _ in range(20)]
        assert [one.text for one in arrived] == [f"number {number}" for number in range(20)]
        assert len({one.external_id for one in arrived}) == 20

    async def test_unconfirmed_message_is_delivered_again(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "first")
            await far_side.says(far_side.private, "second")
            assert (await next_incoming(arrivals)).text == "first"
            lost = await next_incoming(arrivals)  # this request confirms the previous message
        async with far_side.platform.connect() as arrivals:
            again = await arrival(arrivals, lambda one: one.text != "first")
        assert (again.text, again.external_id) == ("second", lost.external_id)

    @needs("backlog")
    async def test_message_sent_while_disconnected_is_received_later(self, far_side: FarSide) -> None:
        async with far_side.platform.connect():
            pass
        await far_side.says(far_side.private, "Is anybody there?")
        async with far_side.platform.connect() as arrivals:
            assert (await next_incoming(arrivals)).text == "Is anybody there?"

    @needs("redelivery")
    async def test_redelivered_message_has_the_same_external_id(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "once")
            assert await far_side.redelivers(), "a network that delivers everything once lacks `redelivery`"
            await far_side.says(far_side.private, "the end")
            arrived = [await next_incoming(arrivals)]
            while arrived[-1].text != "the end":
                arrived.append(await next_incoming(arrivals))
        assert len({one.external_id for one in arrived if one.text == "once"}) == 1


class ChatsSuite(SelectedTests):
    """Tests of groups and threads, which have separate addresses."""

    @needs("groups")
    async def test_group_message_for_others_is_not_addressed_to_us(self, far_side: FarSide) -> None:
        address = _require(far_side.group, "groups")
        async with far_side.platform.connect() as arrivals:
            await far_side.says(address, "and you, Bob?", addressed=False)
            await far_side.says(address, "what time is it?")
            aside, asked = await next_incoming(arrivals), await next_incoming(arrivals)
        assert (aside.text, aside.addressed) == ("and you, Bob?", False)
        assert asked.addressed
        assert asked.text.endswith("what time is it?")
        assert _make_chat_key(asked.address) == _make_chat_key(address)

    @needs("threads")
    async def test_thread_has_its_own_address(self, far_side: FarSide) -> None:
        address = _require(far_side.thread, "threads")
        async with far_side.platform.connect() as arrivals:
            await far_side.says(address, "in here")
            asked = await next_incoming(arrivals)
            await far_side.platform.send(asked.address, Content(text="in here too"), "thread")
        assert _make_chat_key(asked.address) == _make_chat_key(address)
        assert [one.text for one in await far_side.seen(address)] == ["in here too"]

    @needs("threads")
    async def test_a_handoff_thread_can_be_written_to(self, far_side: FarSide) -> None:
        parent = _require(far_side.thread, "threads").chat_id
        thread_id = await far_side.platform.create_handoff_thread(parent, "Trip to 日本 / *plans*\n" * 20)
        assert thread_id
        address = Address(far_side.platform.name, parent, "thread", thread_id)
        await far_side.platform.send(address, Content(text="It continues here."), "moved")
        assert [one.text for one in await far_side.seen(address)] == ["It continues here."]

    @needs("servers")
    async def test_messages_in_a_group_name_its_server(self, far_side: FarSide) -> None:
        assert await _find_server(far_side, _require(far_side.thread or far_side.group, "groups"))

    @needs("servers", "buttons")
    async def test_a_press_in_a_group_names_its_server(self, far_side: FarSide) -> None:
        address = _require(far_side.thread or far_side.group, "groups")
        server = await _find_server(far_side, address)
        ref = await far_side.platform.send(
            address, Content(text="May I?", buttons=(Button("Yes", "approve:7"),)), "ask"
        )
        async with far_side.platform.connect() as arrivals:
            await far_side.presses(address, ref.message_id, "Yes")
            assert (await arrival(arrivals, lambda one: bool(one.button))).server == server

    @needs("servers", "reactions")
    async def test_a_reaction_in_a_group_names_its_server(self, far_side: FarSide) -> None:
        address = _require(far_side.thread or far_side.group, "groups")
        server = await _find_server(far_side, address)
        ref = await far_side.platform.send(address, Content(text="Done."), "marked")
        async with far_side.platform.connect() as arrivals:
            await far_side.reacts(address, ref.message_id, "👍")
            assert (await arrival(arrivals, lambda one: bool(one.reaction))).server == server

    async def test_no_thread_is_created_in_an_unknown_chat(self, far_side: FarSide) -> None:
        assert await far_side.platform.create_handoff_thread(far_side.nowhere.chat_id, "Trip") is None


class SendingSuite(SelectedTests):
    """Tests of sending: posted messages are visible, and no text makes sending fail."""

    async def test_sent_messages_appear_in_order(self, far_side: FarSide) -> None:
        for number in range(5):
            await far_side.platform.send(far_side.private, Content(text=f"piece {number}"), f"key:{number}")
        assert [one.text for one in await far_side.seen(far_side.private)] == [f"piece {number}" for number in range(5)]

    @pytest.mark.parametrize("text", _TRICKY_TEXTS)
    async def test_text_with_tricky_markup_is_sent(self, far_side: FarSide, text: str) -> None:
        await far_side.platform.send(far_side.private, Content(text=text), "nasty")
        assert "word" in (await far_side.seen(far_side.private))[0].text

    @pytest.mark.parametrize("letter", ["x", "é", "日", "😀"])
    async def test_text_at_the_limit_is_sent_in_full(self, far_side: FarSide, letter: str) -> None:
        abilities = far_side.platform.abilities
        text = letter * (abilities.text_limit // measure(letter, abilities))
        await far_side.platform.send(far_side.private, Content(text=text), "full")
        assert (await far_side.seen(far_side.private))[0].text == text

    async def test_a_text_beyond_the_limit_is_refused(self, far_side: FarSide) -> None:
        text = "x" * (far_side.platform.abilities.text_limit + 1)
        with pytest.raises(Rejected):
            await far_side.platform.send(far_side.private, Content(text=text), "long")
        assert await far_side.seen(far_side.private) == []

    async def test_empty_message_is_refused(self, far_side: FarSide) -> None:
        with pytest.raises(Rejected):
            await far_side.platform.send(far_side.private, Content(text=" \n"), "empty")

    async def test_message_to_an_unknown_chat_is_refused(self, far_side: FarSide) -> None:
        with pytest.raises(Rejected):
            await far_side.platform.send(far_side.nowhere, Content(text="Hello?"), "nowhere")

    @needs("idempotent")
    async def test_same_idempotency_key_sends_one_message(self, far_side: FarSide) -> None:
        refs = [await far_side.platform.send(far_side.private, Content(text="once"), "same") for _ in range(3)]
        assert len({ref.message_id for ref in refs}) == 1
        assert len(await far_side.seen(far_side.private)) == 1

    @needs("edits")
    async def test_edit_replaces_the_text_and_may_repeat_it(self, far_side: FarSide) -> None:
        ref = await far_side.platform.send(far_side.private, Content(text="first words"), "edit")
        for text in ("more **words**", "more **words**", "the last words"):
            await far_side.platform.edit(ref, Content(text=text))
        seen = await far_side.seen(far_side.private)
        assert [(one.text, one.message_id) for one in seen] == [("the last words", ref.message_id)]

    @needs("edits")
    async def test_edit_of_an_unknown_message_is_refused(self, far_side: FarSide) -> None:
        ref = await far_side.platform.send(far_side.private, Content(text="here"), "edit")
        with pytest.raises(Rejected):
            await far_side.platform.edit(type(ref)(ref.address, "987654321"), Content(text="there"))

    @needs("buttons", "edits")
    async def test_edit_without_buttons_removes_them(self, far_side: FarSide) -> None:
        content = Content(text="May I?", buttons=(Button("Yes", "approve:7"), Button("No", "deny:7")))
        ref = await far_side.platform.send(far_side.private, content, "ask")
        await far_side.platform.edit(ref, Content(text="May I? Yes"))
        assert [(one.text, one.buttons) for one in await far_side.seen(far_side.private)] == [("May I? Yes", ())]

    @needs("buttons")
    async def test_pressed_button_reports_its_value(self, far_side: FarSide) -> None:
        choices = (Button("Yes, do it", "approve:7"), Button("No 🛑", "deny:7"))
        ref = await far_side.platform.send(far_side.private, Content(text="May I?", buttons=choices), "ask")
        assert (await far_side.seen(far_side.private))[0].buttons == ("Yes, do it", "No 🛑")
        async with far_side.platform.connect() as arrivals:
            await far_side.presses(far_side.private, ref.message_id, "No 🛑")
            pressed = await next_incoming(arrivals)
        assert (pressed.button, pressed.message_id) == ("deny:7", ref.message_id)
        assert _make_chat_key(pressed.address) == _make_chat_key(far_side.private)

    @needs("typing")
    async def test_typing_can_be_shown(self, far_side: FarSide) -> None:
        await far_side.platform.show_typing(far_side.private)


class ReactionsSuite(SelectedTests):
    """Tests of reactions, by people and by us."""

    @needs("reactions")
    async def test_new_reaction_replaces_the_previous_one_and_can_be_removed(self, far_side: FarSide) -> None:
        ref = await _receive_message(far_side)
        own_reactions = []
        for emoji in ("👀", "👍", "👍", "", ""):
            await _require_reactions(far_side).react(ref, emoji)
            own_reactions.append(await far_side.own_reactions(ref.address, ref.message_id))
        assert own_reactions == [["👀"], ["👍"], ["👍"], [], []]

    @needs("reactions")
    async def test_every_emoji_sets_one_reaction(self, far_side: FarSide) -> None:
        ref = await _receive_message(far_side)
        for emoji in ("✅", "❌", "🚀", "❤️", "👩‍👩‍👧"):
            await _require_reactions(far_side).react(ref, emoji)
            assert len(await far_side.own_reactions(ref.address, ref.message_id)) == 1, emoji

    @needs("reactions")
    async def test_reaction_to_an_unknown_message_is_refused(self, far_side: FarSide) -> None:
        ref = await _receive_message(far_side)
        with pytest.raises(Rejected):
            await _require_reactions(far_side).react(MessageRef(ref.address, "987654321"), "👍")

    @needs("reactions")
    async def test_a_reaction_is_reported_without_text(self, far_side: FarSide) -> None:
        ref = await far_side.platform.send(far_side.private, Content(text="Done."), "marked")
        async with far_side.platform.connect() as arrivals:
            await far_side.reacts(far_side.private, ref.message_id, "👍")
            marked = await next_incoming(arrivals)
        assert (marked.reaction, marked.message_id, marked.text, marked.button) == ("👍", ref.message_id, "", "")
        assert marked.addressed
        assert _make_chat_key(marked.address) == _make_chat_key(far_side.private)
        assert marked.sender.id


class FilesSuite(SelectedTests):
    """Tests of files in both directions, within limits and under safe names."""

    @needs("files")
    async def test_file_is_sent_with_its_text(self, far_side: FarSide, tmp_path: Path) -> None:
        path = tmp_path / "figures.csv"
        path.write_bytes(b"a,b\n1,2\n")
        content = Content(text="The figures.", files=(File(str(path), "figures.csv", "text/csv"),))
        await far_side.platform.send(far_side.private, content, "file")
        seen = await far_side.seen(far_side.private)
        assert [name for one in seen for name in one.files] == ["figures.csv"]
        assert "The figures." in [one.text for one in seen]

    @needs("files")
    async def test_unsendable_file_is_refused_together_with_its_text(self, far_side: FarSide, tmp_path: Path) -> None:
        large = tmp_path / "large.bin"
        with large.open("wb") as file:
            file.truncate(far_side.platform.abilities.file_limit + 1)
        for path in (tmp_path / "missing.txt", large):
            with pytest.raises(Rejected):
                await far_side.platform.send(
                    far_side.private, Content(text="Here.", files=(File(str(path), path.name),)), path.name
                )
        assert await far_side.seen(far_side.private) == []

    @needs("files")
    async def test_received_file_is_saved_under_a_safe_name(self, far_side: FarSide, tmp_path: Path) -> None:
        folder = tmp_path / "inner" / "folder"
        folder.mkdir(parents=True)
        paths = []
        async with far_side.platform.connect() as arrivals:
            for name in ("notes.txt", "../../notes.txt", ".hidden", "a/b\\c.txt", "x" * 300 + ".txt", "…日本.txt"):
                await far_side.sends_file(far_side.private, name, b"some bytes \x00\xff")
                (attachment,) = (await next_incoming(arrivals)).attachments
                paths += [await far_side.platform.fetch(attachment, folder) for _ in range(2)]
        for path in paths:
            assert path.parent == folder
            assert path.read_bytes() == b"some bytes \x00\xff"


class FailuresSuite(SelectedTests):
    """Tests of failures: reported in time, with the right error, and without loss."""

    @needs("slow_down")
    async def test_rate_limit_is_reported_with_its_retry_delay(self, far_side: FarSide) -> None:
        await _disrupt(far_side, "slow_down")
        with pytest.raises(SlowDown) as slow:
            await far_side.platform.send(far_side.private, Content(text="too much"), "slow")
        assert slow.value.retry_after > timedelta(0)
        await far_side.calm()
        await far_side.platform.send(far_side.private, Content(text="later"), "slow")
        assert [one.text for one in await far_side.seen(far_side.private)] == ["later"]

    @needs("failing")
    async def test_a_failing_network_is_reported(self, far_side: FarSide) -> None:
        await _expect_unreachable(far_side, "failing")

    @needs("silent")
    async def test_a_silent_network_is_reported_in_time(self, far_side: FarSide) -> None:
        await _expect_unreachable(far_side, "silent")

    @needs("deaf")
    async def test_dead_connection_is_reported_as_unreachable(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "before")
            assert (await next_incoming(arrivals)).text == "before"
            await _disrupt(far_side, "deaf")
            with pytest.raises(Unreachable):
                await next_incoming(arrivals)
        await far_side.calm()
        if far_side.platform.abilities.backlog:
            await far_side.says(far_side.private, "after")
            async with far_side.platform.connect() as arrivals:
                assert (await arrival(arrivals, lambda one: one.text != "before")).text == "after"

    @needs("cut", "backlog")
    async def test_no_message_is_lost_when_connections_break(self, far_side: FarSide) -> None:
        async with far_side.platform.connect() as arrivals:
            await far_side.says(far_side.private, "before")
            first = await next_incoming(arrivals)
            await _disrupt(far_side, "cut")
            await far_side.says(far_side.private, "after")
            try:
                second = await next_incoming(arrivals)
            except Unreachable:
                second = first
        if second is first:
            async with far_side.platform.connect() as arrivals:
                second = await arrival(arrivals, lambda one: one.external_id != first.external_id)
        assert second.text == "after"
        await far_side.platform.send(far_side.private, Content(text="still here"), "cut")

    @needs("revoked")
    async def test_revoked_credentials_are_reported_without_the_secret(self, far_side: FarSide) -> None:
        await _disrupt(far_side, "revoked")
        with pytest.raises(BadCredentials) as unknown:
            await far_side.platform.send(far_side.private, Content(text="hello"), "revoked")
        assert far_side.secret not in str(unknown.value)
        with pytest.raises(BadCredentials):
            async with far_side.platform.connect() as arrivals:
                await next_incoming(arrivals)


class PlatformSuite(ReceivingSuite, ChatsSuite, SendingSuite, ReactionsSuite, FilesSuite, FailuresSuite):
    """All tests of the contract, except for features that the network ``lacks``."""


async def next_incoming(arrivals: AsyncIterator[Incoming]) -> Incoming:
    """Return the next update; half a minute without one is a failure."""
    async with asyncio.timeout(_PATIENCE):
        return await anext(arrivals)


async def arrival(arrivals: AsyncIterator[Incoming], matches: Callable[[Incoming], bool]) -> Incoming:
    """Return the next update that matches."""
    while True:
        incoming = await next_incoming(arrivals)
        if matches(incoming):
            return incoming


def measure(text: str, abilities: PlatformCapabilities) -> int:
    """Return the length of a text in the unit of the network."""
    match abilities.text_unit:
        case "characters":
            return len(text)
        case "utf16":
            return len(text.encode("utf-16-le")) // 2
        case "bytes":
            return len(text.encode())


async def _find_server(far_side: FarSide, address: Address) -> str:
    """Return the server that messages in a group name, whether they are addressed to us or to others."""
    async with far_side.platform.connect() as arrivals:
        await far_side.says(address, "and you, Bob?", addressed=False)
        await far_side.says(address, "what time is it?")
        aside, asked = await next_incoming(arrivals), await next_incoming(arrivals)
    assert aside.server == asked.server
    return asked.server


async def _receive_message(far_side: FarSide) -> MessageRef:
    """Return a message of a person."""
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "Could you do that?")
        asked = await next_incoming(arrivals)
    return MessageRef(asked.address, asked.message_id)


async def _disrupt(far_side: FarSide, failure: FailureKind) -> None:
    assert await far_side.disrupt(failure), f"a far side that can't be made {failure} lacks `{failure}`"


async def _expect_unreachable(far_side: FarSide, failure: FailureKind) -> None:
    await _disrupt(far_side, failure)
    with pytest.raises(Unreachable):
        async with asyncio.timeout(_PATIENCE):
            await far_side.platform.send(far_side.private, Content(text="hello?"), "trouble")
    await far_side.calm()
    await far_side.platform.send(far_side.private, Content(text="hello again"), "trouble")
    assert "hello again" in [one.text for one in await far_side.seen(far_side.private)]


def _require(address: Address | None, feature: Feature) -> Address:
    assert address is not None, f"a network without such chats lacks `{feature}`"
    return address


def _make_chat_key(address: Address) -> tuple[str, str, str]:
    return address.chat_id, address.chat_type, address.thread_id


def _require_reactions(far_side: FarSide) -> MarkingPlatform:
    return cast("MarkingPlatform", far_side.platform)
