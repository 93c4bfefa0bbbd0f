"""Between events and the vocabulary: without a homeserver, whatever people and programs put into an event."""

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


def said(content: dict[str, Any], *, sender: str = "@alice:here.example", kind: str = "m.room.message") -> RoomEvent:
    return RoomEvent(type=kind, event_id="$e", sender=sender, origin_server_ts=1_700_000_000_000, content=content)


def text(body: str, **more: object) -> RoomEvent:
    return said({"msgtype": "m.text", "body": body, **more})


def to_us(body: str) -> RoomEvent:
    return text(body, **{"m.mentions": {"user_ids": [ME.user_id]}})


@pytest.mark.slow
@given(contents, st.sampled_from(["m.room.message", "m.reaction", "m.sticker"]), contents)
def test_no_event_makes_us_stumble(content: dict[str, Any], kind: str, other: dict[str, Any]) -> None:
    event = said(content, kind=kind)
    related_event(event, GROUP, ME)
    for related in (None, said(other), said(other, sender=ME.user_id)):
        for room in (GROUP, PRIVATE):
            incoming = read_incoming(event, room, ME, related)
            assert incoming is None or incoming.external_id == "$e"


@given(json)
def test_what_is_no_event_is_none(source: object) -> None:
    assert read_event(source) is None


@pytest.mark.parametrize("moment", [-5, 0, 10**20])
def test_a_clock_that_is_wrong_is_put_up_with(moment: int) -> None:
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
def test_a_salutation_is_taken_away(body: str, left: str) -> None:
    incoming = read_incoming(to_us(body), GROUP, ME)
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
def test_who_is_meant(content: dict[str, object], named: bool) -> None:
    incoming = read_incoming(said({"msgtype": "m.text", **content}), GROUP, ME)
    assert incoming is not None
    assert incoming.addressed is named


@pytest.mark.parametrize(
    ("mode", "answer", "other"), [("mention", False, False), ("reply", True, False), ("free", True, True)]
)
def test_groups_have_modes(mode: Any, answer: bool, other: bool) -> None:
    me = msgspec.structs.replace(ME, group_mode=mode)
    reply = text("indeed", **{"m.relates_to": {"m.in_reply_to": {"event_id": "$ours"}}})
    ours = said({}, sender=ME.user_id)
    heard = [read_incoming(reply, GROUP, me, ours), read_incoming(reply, GROUP, me, said({}))]
    assert [one and one.addressed for one in heard] == [answer, other]
    assert related_event(reply, GROUP, me) == ("$ours" if mode == "reply" else "")


def test_nobody_edits_what_another_wrote() -> None:
    edit = text(
        "* x",
        **{
            "m.new_content": {"msgtype": "m.text", "body": "x"},
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$o"},
        },
    )
    assert read_incoming(edit, PRIVATE, ME, said({"body": "y"}, sender="@carol:here.example")) is None
    assert read_incoming(edit, PRIVATE, ME, None) is None


def test_an_edit_stays_in_its_thread() -> None:
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
    ("content", "kind", "words"),
    [
        ({"msgtype": "m.image", "body": "cat.png", "url": "mxc://a/b"}, "picture", ""),
        ({"msgtype": "m.image", "body": "my cat", "filename": "cat.png", "url": "mxc://a/b"}, "picture", "my cat"),
        ({"msgtype": "m.audio", "body": "a.ogg", "url": "mxc://a/b", "org.matrix.msc3245.voice": {}}, "voice", ""),
        ({"msgtype": "m.audio", "body": "song.mp3", "url": "mxc://a/b"}, "document", ""),
    ],
)
def test_files_are_named_by_their_kind(content: dict[str, object], kind: str, words: str) -> None:
    incoming = read_incoming(said(content), PRIVATE, ME)
    assert incoming is not None
    assert [one.kind for one in incoming.attachments] == [kind]
    assert incoming.text == words


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


def test_what_was_said_before_we_came_is_not_for_us() -> None:
    one, two, three = text("1"), text("2"), text("3")
    assert since_invitation([one, member("invite"), two, member("join", "invite"), three], ME)[0] is two
    assert since_invitation([one, member("join"), three], ME) == [three]
    assert since_invitation([one, member("join", "leave"), three], ME) == [three]
    assert since_invitation([one, member("join", "join"), three], ME)[0] is one, "only a new name"
    assert since_invitation([one, member("join", user="@alice:here.example"), two], ME)[0] is one


@given(st.text(max_size=TEXT_LIMIT // 4), st.sampled_from([EVENT_LIMIT, ENCRYPTED_LIMIT]), st.integers(1, 4))
def test_a_message_within_the_limit_makes_an_event_within_its_limit(words: str, limit: int, times: int) -> None:
    content = Content(text=(words * times)[: TEXT_LIMIT // 4] or "x")
    for made in (
        message_content(content, Address("matrix", "!r"), limit=limit),
        edit_content(content, "$e", limit=limit),
    ):
        assert len(msgspec.json.encode(made)) <= limit


@pytest.mark.parametrize("letter", ['"', "\n", "\\", "<", "&", "ü", "👍", "*a* "])
def test_the_worst_texts_fit_even_encrypted(letter: str) -> None:
    content = Content(text="x" + letter * ((TEXT_LIMIT - 1) // len(letter.encode())))
    check_text(content)
    for made in (
        message_content(content, Address("matrix", "!r"), limit=ENCRYPTED_LIMIT),
        edit_content(content, "$e", limit=ENCRYPTED_LIMIT),
    ):
        assert len(msgspec.json.encode(made)) <= ENCRYPTED_LIMIT


@pytest.mark.parametrize("words", ["", " \n", "x" * (TEXT_LIMIT + 1), "ü" * (TEXT_LIMIT // 2 + 1)])
def test_nothing_and_too_much_are_refused(words: str) -> None:
    with pytest.raises(Rejected):
        check_text(Content(text=words))


def test_places_in_threads() -> None:
    assert relates_to("", "") == {}
    assert relates_to("", "$q") == {"m.in_reply_to": {"event_id": "$q"}}
    root = {"rel_type": "m.thread", "event_id": "$t"}
    assert relates_to("$t", "") == {**root, "is_falling_back": True, "m.in_reply_to": {"event_id": "$t"}}
    assert relates_to("$t", "$q") == {**root, "is_falling_back": False, "m.in_reply_to": {"event_id": "$q"}}


def test_mentioned_people_are_reported() -> None:
    content = Content(
        text="ask @carol:there.example, not a@b.example or @carol", reply_to="$q", buttons=(Button("Y", "1"),)
    )
    made = message_content(content, Address("matrix", "!r"), asker="@alice:here.example")
    assert made["m.mentions"] == {"user_ids": ["@alice:here.example", "@carol:there.example"]}


@given(st.text(), st.text(), st.text(max_size=3), st.text(max_size=3))
def test_different_keys_are_different_transactions(one: str, other: str, part: str, second: str) -> None:
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
def test_what_refusals_mean(code: str, status: int, kind: type[PlatformError]) -> None:
    assert type(to_platform_error(code, status, "no")) is kind


def test_a_pause_is_reported_and_bounded() -> None:
    def pause(asked: timedelta | None) -> timedelta:
        slow = to_platform_error("M_LIMIT_EXCEEDED", 429, "", retry_after=asked)
        assert isinstance(slow, SlowDown)
        return slow.retry_after

    assert pause(timedelta(seconds=7)) == timedelta(seconds=7)
    assert timedelta() < pause(None) < timedelta(minutes=1)
    assert pause(timedelta(days=400)) == timedelta(hours=1)


def test_a_refused_login_is_a_matter_of_credentials() -> None:
    assert isinstance(to_login_error(Rejected("no")), BadCredentials)
    assert isinstance(to_login_error(Unreachable("no")), Unreachable)


def test_a_login_is_that_of_its_account_only(tmp_path: Path) -> None:
    login = Login("https://here.example", "@bot:here.example", "DEVICE", "secret")
    kept = LoginFile(tmp_path / "new")
    assert kept.load("https://here.example", "bot") is None
    kept.save(login)
    assert kept.load("https://here.example", "bot") == kept.load("https://here.example", "@bot:here.example") == login
    assert kept.load("https://here.example", "other") is None
    assert kept.load("https://there.example", "bot") is None
    (tmp_path / "new" / "login.json").write_text("{")
    assert kept.load("https://here.example", "bot") is None
