"""The line below a reply."""

from pathlib import Path

from talaria.gateway.chats.chat import ReplyFooter, format_footer


def test_the_line_tells_what_a_reply_was_made_with() -> None:
    runtime = ReplyFooter(
        model="some-model",
        context=24_000,
        context_limit=200_000,
        folder=Path.home() / "notes",
        cost_microdollars=30_000,
    )
    assert format_footer(runtime) == "`some-model` · `12 % of 200k` · `~/notes` · `$0.03`"


def test_what_is_not_known_is_left_out() -> None:
    assert format_footer(ReplyFooter(model="some-model")) == "`some-model`"
    assert format_footer(ReplyFooter(folder=Path.home())) == "`~`"
    assert format_footer(ReplyFooter()) == ""


def test_a_folder_cannot_break_the_line() -> None:
    assert format_footer(ReplyFooter(folder=Path("/srv/a`b\nc"))) == "`/srv/abc`"
