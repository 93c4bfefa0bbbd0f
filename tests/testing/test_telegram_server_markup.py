"""MarkdownV2 and HTML are parsed as Telegram does; invalid markup is refused with its position."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.refusals import Refusal


def parse(text: str, mode: str) -> tuple[str, list[tuple[str, int, int]]]:
    plain, entities = read_text(text, mode, None)
    return plain, [(one.type, one.offset, one.length) for one in entities]


def parse_error(text: str, mode: str) -> str:
    with pytest.raises(Refusal) as refused:
        read_text(text, mode, None)
    assert refused.value.code == 400
    return refused.value.description.removeprefix("Bad Request: can't parse entities: ")


@pytest.mark.parametrize(
    ("source", "plain", "entities"),
    [
        ("*a* _b_ __c__ ~d~ ||e|| `f`", "a b c d e f", [
            ("bold", 0, 1), ("italic", 2, 1), ("underline", 4, 1), ("strikethrough", 6, 1), ("spoiler", 8, 1),
            ("code", 10, 1),
        ]),
        ("*bold _both_*", "bold both", [("bold", 0, 9), ("italic", 5, 4)]),
        ("_italic __both___", "italic both", [("italic", 0, 11), ("underline", 7, 4)]),
        ("😀 *x*", "😀 x", [("bold", 3, 1)]),
        ("1\\. a\\_b", "1. a_b", []),
        ("```py\nx = 1\n```", "x = 1\n", [("pre", 0, 6)]),
        ("```\n*no*\n```", "*no*\n", [("pre", 0, 5)]),
        ("`a\\`b*`", "a`b*", [("code", 0, 4)]),
        ("[here](https://a.test/b_\\)c)", "here", [("text_link", 0, 4)]),
        ("[Ada](tg://user?id=5)", "Ada", [("text_mention", 0, 3)]),
        ("![👍](tg://emoji?id=5)", "👍", [("custom_emoji", 0, 2)]),
        (">one\n>two\nthree", "one\ntwo\nthree", [("blockquote", 0, 7)]),
        (">one\n>two||", "one\ntwo", [("expandable_blockquote", 0, 7)]),
        ("**", "", []),
        ("  *a* ", "a", [("bold", 0, 1)]),
    ],
)  # fmt: skip
def test_markdown_becomes_text_and_entities(source: str, plain: str, entities: list[tuple[str, int, int]]) -> None:
    text, found = parse(source, "MarkdownV2")
    assert (text, found) == (
        plain.strip(),
        [one if one[0] != "pre" else (*one[:2], len(plain.strip())) for one in entities],
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("a.b", "Character '.' is reserved and must be escaped with the preceding '\\'"),
        ("a - b", "Character '-' is reserved and must be escaped with the preceding '\\'"),
        ("a | b", "Character '|' is reserved and must be escaped with the preceding '\\'"),
        ("a > b", "Character '>' is reserved and must be escaped with the preceding '\\'"),
        ("wow!", "Character '!' is reserved and must be escaped with the preceding '\\'"),
        ("🏟 *a", "Can't find end of Bold entity at byte offset 5"),
        ("*a _b*", "Can't find end of Bold entity at byte offset 5"),
        ("_a", "Can't find end of Italic entity at byte offset 0"),
        ("__a", "Can't find end of Underline entity at byte offset 0"),
        ("ä `a", "Can't find end of Code entity at byte offset 3"),
        ("```\na", "Can't find end of Pre entity at byte offset 0"),
        ("```py\na", "Can't find end of PreCode entity at byte offset 0"),
        ("||a", "Can't find end of Spoiler entity at byte offset 0"),
        ("[a", "Can't find end of TextUrl entity at byte offset 0"),
        ("[a](b", "Can't find end of a URL at byte offset 4"),
        (">*a\nb*", "Can't find end of Bold entity at byte offset 1"),
    ],
)
def test_invalid_markdown_is_refused_with_its_position(source: str, error: str) -> None:
    assert parse_error(source, "MarkdownV2") == error


@pytest.mark.parametrize(
    ("source", "plain", "entities"),
    [
        ("<b>a</b> <EM>b</em> <u>c</u> <s>d</s>", "a b c d", [
            ("bold", 0, 1), ("italic", 2, 1), ("underline", 4, 1), ("strikethrough", 6, 1),
        ]),
        ('<span class="tg-spoiler">a</span><tg-spoiler>b</tg-spoiler>', "ab", [("spoiler", 0, 1), ("spoiler", 1, 1)]),
        ("<b>😀<i>x</i></b>", "😀x", [("bold", 0, 3), ("italic", 2, 1)]),
        ("a &lt; b &amp;&#38;&#x26; c &nbsp;", "a < b &&& c &nbsp;", []),
        ('<a href="https://a.test?x=1&amp;y=2">here</a>', "here", [("text_link", 0, 4)]),
        ("<a href='tg://user?id=5'>Ada</a>", "Ada", [("text_mention", 0, 3)]),
        ('<pre><code class="language-py">x</code></pre>', "x", [("pre", 0, 1)]),
        ("<pre>x</pre>", "x", [("pre", 0, 1)]),
        ("<code>x</code>", "x", [("code", 0, 1)]),
        ("<blockquote expandable>x</blockquote>", "x", [("expandable_blockquote", 0, 1)]),
        ("<blockquote>x</blockquote>", "x", [("blockquote", 0, 1)]),
        ('<tg-emoji emoji-id="5">👍</tg-emoji>', "👍", [("custom_emoji", 0, 2)]),
        ("<b></b>x", "x", []),
    ],
)  # fmt: skip
def test_html_becomes_text_and_entities(source: str, plain: str, entities: list[tuple[str, int, int]]) -> None:
    assert parse(source, "HTML") == (plain, entities)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("ü <p>a</p>", 'Unsupported start tag "p" at byte offset 3'),
        ("<b>a", 'Can\'t find end tag corresponding to start tag "b"'),
        ("<b>a</i>", 'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"'),
        ("a</b>", "Unexpected end tag at byte offset 1"),
        ("a <b", "Unclosed start tag at byte offset 2"),
        ("<b>a</b", "Unclosed end tag at byte offset 4"),
        ("1 < 2", 'Unsupported start tag "" at byte offset 2'),
        ("<span>a</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
    ],
)
def test_invalid_html_is_refused_with_its_position(source: str, error: str) -> None:
    assert parse_error(source, "HTML") == error


def test_code_block_has_its_language() -> None:
    for text, mode in (("```py\nx\n```", "MarkdownV2"), ('<pre><code class="language-py">x</code></pre>', "HTML")):
        (entity,) = read_text(text, mode, None)[1]
        assert (entity.type, entity.language) == ("pre", "py")


def test_link_has_its_unescaped_url() -> None:
    (entity,) = read_text("[here](https://a.test/b_\\)c)", "MarkdownV2", None)[1]
    assert entity.url == "https://a.test/b_)c"


def test_commands_urls_and_mentions_in_plain_text_are_detected() -> None:
    text = "/new@talaria_bot see https://a.test/x, ask @ada or a@b.test #now"
    assert [(one.type, text[one.offset : one.end]) for one in read_text(text, None, None)[1]] == [
        ("bot_command", "/new@talaria_bot"),
        ("url", "https://a.test/x"),
        ("mention", "@ada"),
        ("email", "a@b.test"),
        ("hashtag", "#now"),
    ]
    assert [one.type for one in read_text("`@ada`", "MarkdownV2", None)[1]] == ["code"]


@given(some.text(some.characters(exclude_categories=["Cs"]), max_size=60))
def test_escaped_text_is_read_back_unchanged(text: str) -> None:
    escaped = re.sub(r"([\\_*\[\]()~`>#+\-=|{}.!])", r"\\\1", text)
    assert read_text(escaped, "MarkdownV2", None)[0] == text.strip()
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert read_text(escaped, "HTML", None)[0] == text.strip()


@given(some.text("*_~|`[]()>!\\\n ab😀", max_size=40))
def test_entities_of_any_markdown_lie_on_character_boundaries(source: str) -> None:
    try:
        text, entities = read_text(source, "MarkdownV2", None)
    except Refusal:
        return
    borders = {len(text[:index].encode("utf-16-le")) // 2 for index in range(len(text) + 1)}
    assert all({one.offset, one.end} <= borders and one.length for one in entities)
