"""Footer of a reply."""

from pathlib import Path

from talaria.gateway.chats.chat import ReplyFooter, format_footer


def test_footer_shows_model_context_folder_and_cost() -> None:
    runtime = ReplyFooter(
        model="some-model",
        context=24_000,
        context_limit=200_000,
        folder=Path.home() / "notes",
        cost_microdollars=30_000,
    )
    assert format_footer(runtime) == "`some-model` · `12 % of 200k` · `~/notes` · `$0.03`"


def test_footer_omits_unknown_values() -> None:
    assert format_footer(ReplyFooter(model="some-model")) == "`some-model`"
    assert format_footer(ReplyFooter(folder=Path.home())) == "`~`"
    assert format_footer(ReplyFooter()) == ""


def test_folder_with_a_line_break_stays_on_one_footer_line() -> None:
    assert format_footer(ReplyFooter(folder=Path("/srv/a`b\nc"))) == "`/srv/abc`"
