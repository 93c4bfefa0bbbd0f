"""Markdown as Discord shows it."""

import pytest

from talaria.contracts.platform import Button
from talaria.core.errors import Rejected
from talaria.platforms.discord.outgoing import build_components, build_menu, format_text, make_nonce, make_thread_name


@pytest.mark.parametrize(
    "text",
    [
        "plain **bold** _slanted_ `code` [link](https://example.org)",
        "# One\n## Two\n### Three",
        "```python\n| a | b |\n|---|---|\n#### no heading\n![no picture](x)\n```",
        "> quoted\n- one\n  - two\n\n1. first",
        "||hidden|| <@123> @everyone",
    ],
)
def test_markdown_supported_by_discord_is_unchanged(text: str) -> None:
    assert format_text(text) == text


def test_table_is_drawn_in_a_code_block() -> None:
    drawn = format_text("Before\n\n| city | °C |\n|---|---:|\n| **Rome** | 31 |\n| 東京 | 28 |\n\nBehind")
    assert drawn == "Before\n\n```\ncity │ °C\n─────┼───\nRome │ 31\n東京 │ 28\n```\n\nBehind"


def test_wide_table_becomes_a_list_of_rows() -> None:
    formatted = format_text(f"| name | what | why |\n|---|---|---|\n| a | {'long ' * 12} | so |\n| b | | {'x' * 9} |")
    assert formatted == f"- **a**: what: {('long ' * 12).strip()}; why: so\n- **b**: why: xxxxxxxxx"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("#### Small", "**Small**"),
        ("###### **Least**", "**Least**"),
        ("Title\n=====\n\ntext", "# Title\n\ntext"),
        ("![a cat](https://example.org/cat.png)", "[a cat](https://example.org/cat.png)"),
        ("see ![](https://example.org/cat.png)", "see https://example.org/cat.png"),
    ],
)
def test_unsupported_markdown_is_replaced(text: str, shown: str) -> None:
    assert format_text(text) == shown


def test_table_source_is_sent_if_the_drawing_is_too_long() -> None:
    source = f"|a|b|\n|-|-|\n|{'x' * 30}|1|\n" + "|1|2|\n" * 300
    assert len(source) < 2000
    assert format_text(source) == source.strip("\n")


def test_up_to_five_choices_are_buttons_and_more_are_a_menu() -> None:
    few = build_components([Button(f"No {number}", f"v{number}") for number in range(5)])
    assert [one["type"] for one in few[0]["components"]] == [2] * 5  # type: ignore[attr-defined]
    many = build_components([Button("x" * 200, f"v{number}") for number in range(25)])
    assert [one["type"] for one in many[0]["components"]] == [3]  # type: ignore[attr-defined]
    values = [one["value"] for one in many[0]["components"][0]["options"]]  # type: ignore[index]
    assert values == [f"v{number}" for number in range(25)]
    assert build_components([]) == []


@pytest.mark.parametrize(
    "buttons", [[Button("x", str(n)) for n in range(26)], [Button("x", "v" * 101)], [Button("x", "")]]
)
def test_invalid_choices_are_refused(buttons: list[Button]) -> None:
    with pytest.raises(Rejected):
        build_components(buttons)


def test_command_menu_contains_only_valid_names() -> None:
    shown = build_menu(
        [("status", "How\nthings are"), ("not a name", "x"), ("Big", "x"), ("new", "x" * 200), ("bare", "")]
    )
    assert [(one["name"], one["description"]) for one in shown] == [
        ("status", "How things are"),
        ("new", "x" * 100),
        ("bare", "bare"),
    ]
    assert len(build_menu([(f"c{number}", "x") for number in range(150)])) == 100


def test_each_part_of_a_message_has_its_own_short_nonce() -> None:
    keys = {make_nonce(key, part) for key in ("a" * 300, "b") for part in (0, 1)}
    assert len(keys) == 4
    assert all(len(key) <= 25 for key in keys)


def test_thread_name_is_one_line_and_limited() -> None:
    assert make_thread_name("Trip to\n 日本 " * 40).startswith("Trip to 日本 Trip")
    assert len(make_thread_name("x" * 300)) == 100
    assert make_thread_name(" \n ") == "Conversation"
