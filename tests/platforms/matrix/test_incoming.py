"""Conversion of Matrix events to incoming messages and of content to events, without a homeserver."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.contracts.platform import Button, Content
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.matrix.account_state import Login, LoginFile
from talaria.platforms.matrix.client import to_login_error, to_platform_error
from talaria.platforms.matrix.events import RoomEvent, read_event
from talaria.platforms.matrix.incoming import BotIdentity, RoomInfo, read_incoming, related_event, since_invitation
from talaria.platforms.matrix.outgoing import (
    ENCRYPTED_LIMIT,
    EVENT_LIMIT,
    TEXT_LIMIT,
    check_text,
    edit_content,
    message_content,
    relates_to,
    transaction_id,
)

ME = BotIdentity("matrix", "@bot:here.example", ("Talaria",))
GROUP = RoomInfo("!g:here.example", 3, "Family", {"@alice:here.example": "Alice"})
PRIVATE = RoomInfo("!p:here.example", 2, "Alice")

json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        "msgtype",
        "body",
        "url",
        "info",
        "file",
        "filename",
        "formatted_body",
        "m.relates_to",
        "m.mentions",
        "m.new_content",
    ]
)
relations = st.fixed_dictionaries(
    {},
    optional={
        "rel_type": st.sampled_from(["m.thread", "m.replace", "m.annotation", "other"]),
        "event_id": st.sampled_from(["$a", "$b"]),
        "key": st.text(max_size=3),
        "is_falling_back": st.booleans(),
        "m.in_reply_to": st.just({"event_id": "$a"}),
    },
)
sensible = st.fixed_dictionaries(
    {"msgtype": st.sampled_from(["m.text", "m.emote", "m.image", "m.audio", "m.file", "m.location", "m.notice"])},
    optional={
        "body": st.text(),
        "url": st.just("mxc://a/b"),
        "filename": st.text(),
        "m.relates_to": relations,
        "m.mentions": st.just({"user_ids": [ME.user_id]}),
        "m.new_content": st.just({"msgtype": "m.text", "body": "new"}),
    },
)
contents = st.one_of(st.dictionaries(fields, json), sensible)


def room_event(
    content: dict[str, Any], *, sender: str = "@alice:here.example", kind: str = "m.room.message"
) -> RoomEvent:
    return RoomEvent(type=kind, event_id="$e", sender=sender, origin_server_ts=1_700_000_000_000, content=content)


def text(body: str, **more: object) -> RoomEvent:
    return room_event({"msgtype": "m.text", "body": body, **more})


def mention(body: str) -> RoomEvent:
    return text(body, **{"m.mentions": {"user_ids": [ME.user_id]}})


@pytest.mark.slow
@given(contents, st.sampled_from(["m.room.message", "m.reaction", "m.sticker"]), contents)
def test_reading_an_arbitrary_event_never_raises(content: dict[str, Any], kind: str, other: dict[str, Any]) -> None:
    event = room_event(content, kind=kind)
    related_event(event, GROUP, ME)
    for related in (None, room_event(other), room_event(other, sender=ME.user_id)):
        for room in (GROUP, PRIVATE):
            incoming = read_incoming(event, room, ME, related)
            assert incoming is None or incoming.external_id == "$e"


@given(json)
def test_invalid_event_is_read_as_none(source: object) -> None:
    assert read_event(source) is None


@pytest.mark.parametrize("moment", [-5, 0, 10**20])
def test_event_with_a_wrong_timestamp_is_read(moment: int) -> None:
    event = msgspec.structs.replace(text("x"), origin_server_ts=moment)
    assert read_incoming(event, PRIVATE, ME) is not None


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("Talaria: /status", "/status"),
        ("@bot:here.example /status", "/status"),
        ("@Talaria, hello", "hello"),
        ("bot: hi", "hi"),
        ("Talaria is a nice name", "Talaria is a nice name"),
        ("talariac: hi", "talariac: hi"),
        ("Talaria:", "Talaria:"),
    ],
)
def test_leading_name_of_the_bot_is_removed(body: str, left: str) -> None:
    incoming = read_incoming(mention(body), GROUP, ME)
    assert incoming is not None
    assert incoming.addressed
    assert incoming.text == left


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"body": "@bot:here.example hi"}, True),
        ({"body": "@bot:here.example hi", "m.mentions": {}}, False),
        ({"body": "x@bot:here.example.org"}, False),
        ({"body": "T", "formatted_body": '<a href="https://matrix.to/#/@bot:here.example">T</a>'}, True),
        ({"body": "T", "formatted_body": '<a href="https://matrix.to/#/%40bot:here.example">T</a>'}, True),
        ({"body": "T", "formatted_body": '<a href="https://matrix.to/#/@bot:here.example.org">T</a>'}, False),
        ({"body": "everybody", "m.mentions": {"room": True}}, False),
    ],
)
def test_message_is_addressed_if_it_mentions_the_bot(content: dict[str, object], named: bool) -> None:
    incoming = read_incoming(room_event({"msgtype": "m.text", **content}), GROUP, ME)
    assert incoming is not None
    assert incoming.addressed is named


@pytest.mark.parametrize(
    ("mode", "answer", "other"), [("mention", False, False), ("reply", True, False), ("free", True, True)]
)
def test_group_mode_decides_which_replies_are_addressed(mode: Any, answer: bool, other: bool) -> None:
    me = msgspec.structs.replace(ME, group_mode=mode)
    reply = text("indeed", **{"m.relates_to": {"m.in_reply_to": {"event_id": "$ours"}}})
    ours = room_event({}, sender=ME.user_id)
    received = [read_incoming(reply, GROUP, me, ours), read_incoming(reply, GROUP, me, room_event({}))]
    assert [one and one.addressed for one in received] == [answer, other]
    assert related_event(reply, GROUP, me) == ("$ours" if mode == "reply" else "")


def test_edit_of_another_senders_message_is_ignored() -> None:
    edit = text(
        "* x",
        **{
            "m.new_content": {"msgtype": "m.text", "body": "x"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$o"},
        },
    )
    assert read_incoming(edit, PRIVATE, ME, room_event({"body": "y"}, sender="@carol:here.example")) is None
    assert read_incoming(edit, PRIVATE, ME, None) is None


def test_edit_has_the_thread_of_its_message() -> None:
    edit = text(
        "* x",
        **{
            "m.new_content": {"msgtype": "m.text", "body": "x"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$o"},
        },
    )
    before = text("y", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}})
    incoming = read_incoming(edit, GROUP, ME, before)
    assert incoming is not None
    assert (incoming.address.thread_id, incoming.address.chat_type) == ("$root", "thread")


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        ({"msgtype": "m.image", "body": "cat.png", "url": "mxc://a/b"}, "picture", ""),
        ({"msgtype": "m.image", "body": "my cat", "filename": "cat.png", "url": "mxc://a/b"}, "picture", "my cat"),
        ({"msgtype": "m.audio", "body": "a.ogg", "url": "mxc://a/b", "org.matrix.msc3245.voice": {}}, "voice", ""),
        ({"msgtype": "m.audio", "body": "song.mp3", "url": "mxc://a/b"}, "document", ""),
    ],
)
def test_attachment_kind_and_caption_are_read(content: dict[str, object], kind: str, body: str) -> None:
    incoming = read_incoming(room_event(content), PRIVATE, ME)
    assert incoming is not None
    assert [one.kind for one in incoming.attachments] == [kind]
    assert incoming.text == body


def member(membership: str, before: str = "", user: str = ME.user_id) -> RoomEvent:
    source = {
        "type": "m.room.member",
        "event_id": "$m",
        "sender": user,
        "state_key": user,
        "content": {"membership": membership},
    }
    event = read_event(source | ({"unsigned": {"prev_content": {"membership": before}}} if before else {}))
    assert event is not None
    return event


def test_messages_before_the_invitation_are_dropped() -> None:
    one, two, three = text("1"), text("2"), text("3")
    assert since_invitation([one, member("invite"), two, member("join", "invite"), three], ME)[0] is two
    assert since_invitation([one, member("join"), three], ME) == [three]
    assert since_invitation([one, member("join", "leave"), three], ME) == [three]
    assert since_invitation([one, member("join", "join"), three], ME)[0] is one, "only a new name"
    assert since_invitation([one, member("join", user="@alice:here.example"), two], ME)[0] is one


@given(st.text(max_size=TEXT_LIMIT // 4), st.sampled_from([EVENT_LIMIT, ENCRYPTED_LIMIT]), st.integers(1, 4))
def test_text_within_the_limit_makes_an_event_within_its_limit(body: str, limit: int, times: int) -> None:
    content = Content(text=(body * times)[: TEXT_LIMIT // 4] or "x")
    for event_content in (
        message_content(content, Address("matrix", "!r"), limit=limit),
        edit_content(content, "$e", limit=limit),
    ):
        assert len(msgspec.json.encode(event_content)) <= limit


@pytest.mark.parametrize("piece", ['"', "\n", "\\", "<", "&", "ü", "👍", "*a* "])
def test_longest_text_of_escaped_characters_fits_into_an_encrypted_event(piece: str) -> None:
    content = Content(text="x" + piece * ((TEXT_LIMIT - 1) // len(piece.encode())))
    check_text(content)
    for event_content in (
        message_content(content, Address("matrix", "!r"), limit=ENCRYPTED_LIMIT),
        edit_content(content, "$e", limit=ENCRYPTED_LIMIT),
    ):
        assert len(msgspec.json.encode(event_content)) <= ENCRYPTED_LIMIT


@pytest.mark.parametrize("body", ["", " \n", "x" * (TEXT_LIMIT + 1), "ü" * (TEXT_LIMIT // 2 + 1)])
def test_empty_and_too_long_texts_are_refused(body: str) -> None:
    with pytest.raises(Rejected):
        check_text(Content(text=body))


def test_relation_contains_thread_and_reply() -> None:
    assert relates_to("", "") == {}
    assert relates_to("", "$q") == {"m.in_reply_to": {"event_id": "$q"}}
    root = {"rel_type": "m.thread", "event_id": "$t"}
    assert relates_to("$t", "") == {**root, "is_falling_back": True, "m.in_reply_to": {"event_id": "$t"}}
    assert relates_to("$t", "$q") == {**root, "is_falling_back": False, "m.in_reply_to": {"event_id": "$q"}}


def test_mentions_contain_the_asker_and_user_ids_of_the_text() -> None:
    content = Content(
        text="ask @carol:there.example, not a@b.example or @carol", reply_to="$q", buttons=(Button("Y", "1"),)
    )
    event_content = message_content(content, Address("matrix", "!r"), asker="@alice:here.example")
    assert event_content["m.mentions"] == {"user_ids": ["@alice:here.example", "@carol:there.example"]}


@given(st.text(), st.text(), st.text(max_size=3), st.text(max_size=3))
def test_different_keys_have_different_transaction_ids(one: str, other: str, part: str, second: str) -> None:
    assert (transaction_id(one) == transaction_id(other)) is (one == other)
    assert (transaction_id(one, part) == transaction_id(one, second)) is (part == second)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("M_LIMIT_EXCEEDED", 429, SlowDown),
        ("", 429, SlowDown),
        ("M_UNKNOWN_TOKEN", 401, BadCredentials),
        ("M_MISSING_TOKEN", 401, BadCredentials),
        ("M_USER_DEACTIVATED", 403, BadCredentials),
        ("M_FORBIDDEN", 403, Rejected),
        ("M_NOT_FOUND", 404, Rejected),
        ("M_TOO_LARGE", 413, Rejected),
        ("M_UNKNOWN", 500, Unreachable),
        ("", 502, Unreachable),
        ("", 404, Unreachable),
        ("", 0, Unreachable),
    ],
)
def test_error_codes_become_platform_errors(code: str, status: int, kind: type[PlatformError]) -> None:
    assert type(to_platform_error(code, status, "no")) is kind


def test_pause_of_a_rate_limit_is_bounded() -> None:
    def pause(requested: timedelta | None) -> timedelta:
        slow = to_platform_error("M_LIMIT_EXCEEDED", 429, "", retry_after=requested)
        assert isinstance(slow, SlowDown)
        return slow.retry_after

    assert pause(timedelta(seconds=7)) == timedelta(seconds=7)
    assert timedelta() < pause(None) < timedelta(minutes=1)
    assert pause(timedelta(days=400)) == timedelta(hours=1)


def test_refused_login_is_reported_as_bad_credentials() -> None:
    assert isinstance(to_login_error(Rejected("no")), BadCredentials)
    assert isinstance(to_login_error(Unreachable("no")), Unreachable)


def test_stored_login_is_loaded_only_for_its_account(tmp_path: Path) -> None:
    login = Login("https://here.example", "@bot:here.example", "DEVICE", "secret")
    login_file = LoginFile(tmp_path / "new")
    assert login_file.load("https://here.example", "bot") is None
    login_file.save(login)
    assert (
        login_file.load("https://here.example", "bot")
        == login_file.load("https://here.example", "@bot:here.example")
        == login
    )
    assert login_file.load("https://here.example", "other") is None
    assert login_file.load("https://there.example", "bot") is None
    (tmp_path / "new" / "login.json").write_text("{")
    assert login_file.load("https://here.example", "bot") is None
