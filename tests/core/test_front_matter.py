"""Front matter of Markdown texts."""

import pytest

from talaria.core.text_formats import split_front_matter


@pytest.mark.parametrize(
    ("front", "value"),
    [
        ("help: Look it up.", "Look it up."),
        ('help: "Look: it up."', "Look: it up."),
        ('help: "this" and "that"', '"this" and "that"'),
        ("Help:   spaces  \n", "spaces"),
        ("help: one\n  two\n  three", "one two three"),
        ("help: >\n  one\n\n  two", "one two"),
        ("help: |\n  one\n  two", "one\ntwo"),
        ("help:", ""),
    ],
)
def test_front_matter_field_has_one_value(front: str, value: str) -> None:
    assert split_front_matter(f"---\n{front}\n---\nText\n") == ({"help": value}, "Text")


@pytest.mark.parametrize("text", ["Text", "", "---\nhelp: never closed", "Text\n---\nhelp: too late\n---\n"])
def test_text_without_front_matter_is_returned_unchanged(text: str) -> None:
    assert split_front_matter(text) == ({}, text.strip())


def test_byte_order_mark_and_crlf_are_accepted() -> None:
    assert split_front_matter("\ufeff---\r\nhelp: x\r\n---\r\nText\r\n") == ({"help": "x"}, "Text")
