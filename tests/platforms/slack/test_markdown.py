"""Markdown converted to Slack's blocks and to mrkdwn."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.contracts.platform import Button, Content
from talaria.core.errors import Rejected
from talaria.platforms.slack.blocks import (
    Divider,
    Element,
    Link,
    ListElement,
    Preformatted,
    Quote,
    RichText,
    Section,
    Style,
    Table,
    TextElement,
    as_mrkdwn,
)
from talaria.platforms.slack.markdown import read_markdown
from talaria.platforms.slack.outgoing import TEXT_LIMIT, make_plain_post, make_post
from talaria.testing.slack_server.methods import check_blocks

BOLD, ITALIC, STRIKE, CODE = Style(bold=True), Style(italic=True), Style(strike=True), Style(code=True)
PIECES = (
    "word ", "**", "*", "_", "~~", "`", "```\n", "\n", "\n\n", "> ", "- ", "1. ", "# ", "| a ", "|", "\n|--|--|\n",
    "[x](https://a.example)", "![p](", "<", "&", "---\n", "    ", "\\", ":smile:", "<!channel>", "日本", "👩‍👩‍👧",
)  # fmt: skip


def elements(source: str) -> tuple[Element, ...]:
    (block,) = read_markdown(source)
    assert isinstance(block, RichText)
    return block.elements


def section(text: str) -> Section:
    return Section((TextElement(text),))


def test_inline_styles_become_text_elements() -> None:
    assert elements("a **b** *c* ~~d~~ `e` ***f***") == (
        Section(
            (
                TextElement("a "),
                TextElement("b", BOLD),
                TextElement(" "),
                TextElement("c", ITALIC),
                TextElement(" "),
                TextElement("d", STRIKE),
                TextElement(" "),
                TextElement("e", CODE),
                TextElement(" "),
                TextElement("f", Style(bold=True, italic=True)),
            )
        ),
    )


def test_web_links_become_links_and_others_become_text() -> None:
    source = "[**x** y](https://a.example/?q=1&r) <https://b.example> [z](../file) ![p](https://c.example/p.png)"
    assert elements(source) == (
        Section(
            (
                Link("https://a.example/?q=1&r", "x", BOLD),
                Link("https://a.example/?q=1&r", " y"),
                TextElement(" "),
                Link("https://b.example", "https://b.example"),
                TextElement(" z (../file) "),
                Link("https://c.example/p.png", "p"),
            )
        ),
    )


def test_paragraphs_are_separated_and_headings_are_bold() -> None:
    assert elements("# Title\ntext\nmore\n\nlast") == (
        Section((TextElement("Title", BOLD), TextElement("\ntext\nmore\n\nlast"))),
    )


def test_lists_become_list_elements_with_indent() -> None:
    assert elements("- one\n- two\n  1. deep\n  2. deeper\n- [x] three\n\n7. seven\n8. eight") == (
        ListElement("bullet", (section("one"), section("two"))),
        ListElement("ordered", (section("deep"), section("deeper")), indent=1),
        ListElement("bullet", (section("☑ three"),)),
        ListElement("ordered", (section("seven"), section("eight")), offset=6),
    )


def test_code_in_a_list_does_not_restart_its_numbers() -> None:
    assert elements("1. one\n   ```py\n   x = 1\n   ```\n2. two") == (
        ListElement("ordered", (section("one"),)),
        Preformatted((TextElement("x = 1"),)),
        ListElement("ordered", (section("two"),), offset=1),
    )


def test_quotation_is_one_element_with_all_its_content() -> None:
    assert elements("before\n> said\n> - a\n> - b\n>\n> more\n\nafter") == (
        section("before\n"),
        Quote((TextElement("said\n• a\n• b\nmore"),)),
        section("after"),
    )


def test_first_table_is_a_table_block_and_others_are_drawn() -> None:
    first, line, second = read_markdown("| a | b |\n|:-:|--:|\n| **1** | |\n\n---\n\n| 日 | d |\n|---|---|\n| 2 | 3 |")
    assert isinstance(first, Table)
    assert [[cell.text for cell in row] for row in first.rows] == [["a", "b"], ["1", " "]]
    assert [one.align for one in first.column_settings] == ["center", "right"]
    assert line == Divider()
    assert second == RichText((Preformatted((TextElement("日 │ d\n───┼──\n2  │ 3"),)),))


def test_a_table_that_is_too_large_is_drawn() -> None:
    large = "| a |\n|---|\n" + "| 1 |\n" * 100
    wide = "|" + " a |" * 21 + "\n|" + "---|" * 21
    for source in (large, wide):
        (block,) = read_markdown(source)
        assert isinstance(block, RichText)


def test_blocks_are_converted_to_mrkdwn() -> None:
    source = (
        "# T\n**b** *i* ~~s~~ `c<d` [x|y](https://a.example/?a=1&b)\n- p\n  - q\n\n> said\n\n```\na & b\n```\n---\n"
    )
    assert as_mrkdwn(read_markdown(source)) == (
        "*T*\n*b* _i_ ~s~ `c&lt;d` <https://a.example/?a=1&amp;b|x/y>\n• p\n    • q\n> said\n```\na &amp; b\n```\n———"
    )


@pytest.mark.parametrize("text", ["plain words", "two\nlines & <more>", "e-mail@example.org", "1 < 2 > 0"])
def test_text_without_markup_has_no_blocks(text: str) -> None:
    post = make_post(Content(text=text))
    assert post.blocks == []
    assert post.text == text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@pytest.mark.parametrize("text", ["snake_case_name", "2 * 3", ":smile:", "a ~ b", "back\\`tick"])
def test_text_that_resembles_mrkdwn_is_sent_literally(text: str) -> None:
    (block,) = make_post(Content(text=text)).blocks
    assert block["elements"][0]["elements"][0]["text"] == text.replace("\\", "")


def test_text_is_never_longer_than_the_limit_of_slack() -> None:
    for text in ("&" * TEXT_LIMIT, "<" * TEXT_LIMIT, "- a\n\n---\n\n" * (TEXT_LIMIT // 10)):
        post = make_post(Content(text=text, buttons=(Button("x", "y"),)))
        check_blocks(post.blocks)
        assert len(post.text) <= 40_000
    with pytest.raises(Rejected):
        make_post(Content(text="x" * (TEXT_LIMIT + 1)))


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25).map("".join) | st.text(max_size=60))
def test_blocks_of_any_text_are_valid(source: str) -> None:
    content = Content(text=f"x {source}", buttons=(Button("x", "y"),))
    for post in (make_post(content), make_plain_post(content)):
        check_blocks(post.blocks)
        assert post.text.strip()
        assert "<!channel>" not in post.text
        msgspec.json.encode(post)
