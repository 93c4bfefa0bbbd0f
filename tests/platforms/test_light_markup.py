"""Markdown converted to lighter notations, for networks that don't render Markdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from talaria.platforms.content import PLAIN, STARS, convert_markdown
from talaria.platforms.googlechat.wire import MARKUP

CODE = "`**code**` and\n```sh\n# no **title**\n```\nend"


@pytest.mark.parametrize(
    ("markdown", "stars", "plain"),
    [
        ("**bold** and *italic*", "*bold* and _italic_", "bold and italic"),
        ("# Title\n- *one*\n- two", "*Title*\n- _one_\n- two", "Title\n- one\n- two"),
        ("## **Bold** title ##", "*Bold title*", "Bold title"),
        (
            "~~gone~~ [site](https://example.org/a_b)",
            "~gone~ site (https://example.org/a_b)",
            "gone site (https://example.org/a_b)",
        ),
        (
            "![a cat](https://example.org/cat.png)",
            "a cat (https://example.org/cat.png)",
            "a cat (https://example.org/cat.png)",
        ),
        ("2 * 3 * 4, a_b_c, **, # 1 ~~", "2 * 3 * 4, a_b_c, **, # 1 ~~", "2 * 3 * 4, a_b_c, **, # 1 ~~"),
        (CODE, CODE, "`**code**` and\n# no **title**\nend"),
        ("```\nopen **end**", "```\nopen **end**", "open **end**"),
    ],
)
def test_markdown_is_converted_to_stars_and_plain_text(markdown: str, stars: str, plain: str) -> None:
    assert convert_markdown(markdown, STARS) == stars
    assert convert_markdown(markdown, PLAIN) == plain


def test_links_of_google_chat_have_angle_brackets() -> None:
    assert convert_markdown("**see** [site](https://example.org)", MARKUP) == "*see* <https://example.org|site>"


@given(st.text(alphabet="ab *_~`#[]()!\n\\:/h", max_size=80))
def test_converted_text_has_the_same_letters_and_is_never_longer(text: str) -> None:
    for notation in (STARS, MARKUP):
        converted = convert_markdown(text, notation)
        assert len(converted) <= len(text)
        assert sorted(filter(str.isalpha, converted)) == sorted(filter(str.isalpha, text))
    assert len(convert_markdown(text, PLAIN)) <= len(text)  # the languages of code blocks are removed too
