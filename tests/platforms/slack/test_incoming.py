"""Translation of Slack's text and events: people, links, channels and emoji."""

from datetime import UTC, datetime

import pytest

from talaria.platforms.content import safe_file_name
from talaria.platforms.slack.events import Callback, Event, Interaction, read_payload
from talaria.platforms.slack.incoming import (
    BotIdentity,
    EventContext,
    emoji_for,
    escape,
    make_address,
    names_for,
    read_event,
    read_interaction,
    read_text,
)

ME = BotIdentity(platform="slack", user_id="U0BOT", name="talaria")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("<@U0BOT> hello", "hello"),
        ("<@U0BOT>: /status", "/status"),
        ("  <@U0BOT|talaria>, hello", "hello"),
        ("<@U0BOT>", "@talaria"),
        ("ask <@U0BOT> or <@U1ANN> or <@U2>", "ask @talaria or @Ann or @U2"),
        ("see <https://a.example/?a=1&amp;b=2>", "see https://a.example/?a=1&b=2"),
        ("see <https://a.example|the page>", "see [the page](https://a.example)"),
        ("to <mailto:a@b.example|a@b.example>", "to a@b.example"),
        ("in <#C1|general> or <#C2>", "in #general or #C2"),
        ("<!here> <!subteam^S1|@team> <!channel>", "@here @team @channel"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 < 2 && 3 > 2"),
        ("&amp;lt;b&amp;gt;", "&lt;b&gt;"),
        ("```\ncode &lt;b&gt;\n```", "```\ncode <b>\n```"),
        ("<>", "<>"),
    ],
)  # fmt: skip
def test_slack_text_becomes_readable_text(written: str, read: str) -> None:
    assert read_text(written, {"U1ANN": "Ann", "U0BOT": "talaria"}, "U0BOT") == read


@pytest.mark.parametrize("text", ["a & b", "<!channel>", "&amp;", "x"])
def test_escaped_text_is_read_back_unchanged(text: str) -> None:
    assert read_text(escape(text), {}, "") == text
    assert "<" not in escape(text)


def test_chat_type_follows_from_the_channel_id() -> None:
    assert (make_address("slack", "D1", "").chat_type, make_address("slack", "D1", "1.1").chat_type) == (
        "private",
        "private",
    )
    assert (make_address("slack", "C1", "").chat_type, make_address("slack", "G1", "1.1").chat_type) == (
        "group",
        "thread",
    )


def test_a_message_has_the_time_at_which_it_was_written() -> None:
    incoming = read_event(
        Event(type="message", channel="D1", user="U1", text="x", ts="1700000000.000100"), ME, EventContext()
    )
    assert incoming is not None
    assert incoming.at == datetime(2023, 11, 14, 22, 13, 20, 100, UTC)
    odd = read_event(Event(type="message", channel="D1", user="U1", text="x", ts="soon"), ME, EventContext())
    assert odd is not None


def test_edit_that_removes_our_mention_is_still_addressed_to_us() -> None:
    payload = {
        "event": {
            "type": "message",
            "subtype": "message_changed",
            "channel": "C1",
            "message": {"user": "U1", "text": "hello", "ts": "1.1", "edited": {"ts": "2.1"}},
            "previous_message": {"user": "U1", "text": "<@U0BOT> hello", "ts": "1.1"},
        }
    }
    callback = read_payload(payload, Callback)
    assert callback is not None
    changed = read_event(callback.event, ME, EventContext())
    assert changed is not None
    assert (changed.addressed, changed.external_id, changed.address.thread_id) == (True, "C1:1.1:2.1", "1.1")


def test_me_messages_are_reported_with_the_name_of_the_person() -> None:
    posted = Event(type="message", subtype="me_message", channel="D1", user="U1", text="waves", ts="1.1")
    incoming = read_event(posted, ME, EventContext(names={"U1": "Ann"}))
    assert incoming is not None
    assert incoming.text == "* Ann waves"


def test_button_without_a_value_is_ignored() -> None:
    payload = {"type": "block_actions", "user": {"id": "U1"}, "channel": {"id": "D1"}, "actions": [{"value": None}]}
    pressed = read_payload(payload, Interaction)
    assert pressed is not None
    assert read_interaction(pressed, ME, datetime.now(UTC)) is None


@pytest.mark.parametrize("name", ["+1", "tada", "white_check_mark", "woman-woman-girl", "+1::skin-tone-4", "heart"])
def test_emoji_name_is_converted_both_ways(name: str) -> None:
    assert names_for(emoji_for(name))[0] == name


@pytest.mark.parametrize(
    ("emoji", "names"),
    [
        ("❤️", ["heart", "eyes"]),
        ("👍🏽", ["+1::skin-tone-4", "+1", "eyes"]),
        ("🐉", ["dragon", "eyes"]),
        ("🇩🇪", ["eyes"]),
        ("👀", ["eyes"]),
        (":shipit:", ["shipit", "eyes"]),
    ],
)
def test_emoji_has_names_and_a_fallback(emoji: str, names: list[str]) -> None:
    assert names_for(emoji) == names


@pytest.mark.parametrize("name", ["shipit", "latin_small_letter_a", "space", ""])
def test_unknown_emoji_name_is_unchanged(name: str) -> None:
    assert emoji_for(name) == f":{name}:"


@pytest.mark.parametrize(
    ("original", "safe"),
    [
        ("../../x.txt", "x.txt"),
        (".hidden", "hidden"),
        ("a/b\\c.txt", "c.txt"),
        ("", "file"),
        ("…", "_"),
        ("a", "a.png"),
    ],
)
def test_file_names_are_made_safe(original: str, safe: str) -> None:
    assert safe_file_name(original, "image/png" if original == "a" else "") == safe


def test_each_update_of_an_org_wide_app_names_its_workspace() -> None:
    in_one_workspace = BotIdentity(platform="slack", user_id="U0BOT", workspace="T1")
    org_wide = BotIdentity(platform="slack", user_id="U0BOT", workspace="E1", is_org_wide=True)
    event, press, without_team = {"team_id": "T2"}, {"team": {"id": "T3"}}, {"team": None}
    assert [in_one_workspace.find_workspace(one) for one in (event, press, without_team)] == ["T1", "T1", "T1"]
    assert [org_wide.find_workspace(one) for one in (event, press, without_team)] == ["T2", "T3", "E1"]
