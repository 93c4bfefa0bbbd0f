"""Markdown rendered for a terminal."""

import re
import subprocess
import sys

import pytest

from talaria.cli.markdown.stream import render
from talaria.cli.markdown.styled_text import THEMES, Theme, measure_width

DARK, LIGHT, MONO = THEMES["dark"], THEMES["light"], THEMES["mono"]


def plain(text: str, width: int = 60) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", render(text, DARK, width))


def lines(text: str, width: int = 60) -> list[str]:
    return plain(text, width).splitlines()


def luminance(color: tuple[int, int, int]) -> float:
    parts = [part / 255 for part in color]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_of_palette(number: int, ground: tuple[int, int, int]) -> float:
    """Return the contrast of a colour of the 256; readers need 4.5."""
    steps = (0, 95, 135, 175, 215, 255)
    index = number - 16
    grey = 8 + 10 * (number - 232)
    color = (grey,) * 3 if number >= 232 else (steps[index // 36], steps[index // 6 % 6], steps[index % 6])
    low, high = sorted((luminance(color), luminance(ground)))
    return (high + 0.05) / (low + 0.05)


def test_reply_with_all_block_types_is_rendered() -> None:
    text = """# Title
First *line*
second **line**

- one
- two
  - nested
1) first
1) second

   more of it
- [ ] open
- [x] done

> said
>
> > before

---
~~~
as it is
~~~
"""
    assert (
        plain(text)
        == """Title

First line
second line

• one
• two
  • nested
1) first
2) second

   more of it
[ ] open
[x] done

│ said
│
│ │ before

────────────────────────────────────────

as it is
"""
    )


def test_styles_are_reset_at_the_end_of_a_line() -> None:
    assert render("**12345678 b** `c`", MONO, 10) == "\x1b[1m12345678 b\x1b[0m\n`c`\n"
    assert render("**123456 bbbb**", MONO, 10) == "\x1b[1m123456\x1b[0m\n\x1b[1mbbbb\x1b[0m\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**a**", "\x1b[1ma\x1b[0m"),
        ("*a* _b_", "\x1b[3ma\x1b[0m \x1b[3mb\x1b[0m"),
        ("***a***", "\x1b[1;3ma\x1b[0m"),
        ("**a *b* c**", "\x1b[1ma \x1b[0m\x1b[1;3mb\x1b[0m\x1b[1m c\x1b[0m"),
        ("~~a~~", "\x1b[9ma\x1b[0m"),
        ("`a*b*`", "\x1b[38;5;180ma*b*\x1b[0m"),
        ("``a`b``", "\x1b[38;5;180ma`b\x1b[0m"),
        ("snake_case_name 2 * 3 * 4", "snake_case_name 2 * 3 * 4"),
        (r"\*a\* &lt;b&gt;", "*a* <b>"),
        ("**「強調」**です", "\x1b[1m「強調」\x1b[0mです"),
        ("**open", "**open"),
        ("`open", "`open"),
        ("[open](", "[open]("),
        ("<b>bold</b> x", "<b>bold</b> x"),
    ],
)
def test_inline_marks_are_rendered(text: str, shown: str) -> None:
    assert render(text, DARK, 60) == f"{shown}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[docs](https://a.test/x)", "docs (https://a.test/x)"),
        ('[docs](https://a.test/x "title")', "docs (https://a.test/x)"),
        ("[https://a.test](https://a.test)", "https://a.test"),
        ("[a.test](https://a.test/)", "a.test"),
        ("[me@a.test](mailto:me@a.test)", "me@a.test"),
        ("<https://a.test/x_y_z>", "https://a.test/x_y_z"),
        ("see https://a.test/a_(b)_c).", "see https://a.test/a_(b)_c)."),
        ("![picture](a.png)", "picture (a.png)"),
        ("[![badge](b.svg)](https://a.test)", "badge (b.svg) (https://a.test)"),
        ("[x](<a b>)", "x (a b)"),
        ("[]()", ""),
    ],
)
def test_link_shows_its_address_unless_it_equals_its_text(text: str, shown: str) -> None:
    assert plain(text) == f"{shown}\n"


def test_headings_are_left_aligned_without_their_marks() -> None:
    assert lines("# One #\ntext\n\nTwo\n---\n### Three") == ["One", "", "text", "", "Two", "", "Three"]


def test_paragraph_is_wrapped_and_its_line_breaks_are_preserved() -> None:
    assert lines("one two three\nfour", 8) == ["one two", "three", "four"]


def test_word_longer_than_the_width_is_not_broken() -> None:
    address = "https://a.test/" + "x" * 80
    assert lines(f"see {address} there", 20) == ["see", address, "there"]


def test_text_without_spaces_is_wrapped_by_its_columns() -> None:
    assert lines("漢字漢字漢、字", 10) == ["漢字漢字", "漢、字"]


@pytest.mark.parametrize(
    ("text", "width"),
    [("漢字", 4), ("👍🏽", 2), ("👨\u200d👩\u200d👧", 2), ("❤\ufe0f", 2), ("e\u0301", 1), ("🇩🇪", 2), ("→…", 2)],
)
def test_width_is_measured_in_terminal_columns(text: str, width: int) -> None:
    assert measure_width(text) == width


def test_list_numbers_are_incremented_and_gaps_preserved() -> None:
    assert lines("1. a\n1. b\n5. c\n\ntext\n\n4. d") == ["1. a", "2. b", "5. c", "", "text", "", "4. d"]


def test_two_spaces_below_a_numbered_item_start_a_nested_list() -> None:
    assert lines("1. a\n  - b\n    - c\n2. d") == ["1. a", "   • b", "     • c", "2. d"]


def test_blank_lines_between_items_are_preserved() -> None:
    assert lines("text\n- a\n- b\n\n- c\n-\n# end") == ["text", "• a", "• b", "", "• c", "•", "", "end"]


def test_long_list_items_have_a_hanging_indent() -> None:
    assert lines("10. one two three", 12) == ["10. one two", "    three"]


def test_quotes_contain_other_blocks_and_lazy_lines() -> None:
    assert lines("> a\nlazy\n> - b\n> ```\n> c\n\nout") == ["│ a", "│ lazy", "│ • b", "│", "│ c", "", "out"]


def test_tables_are_aligned_without_spaces_at_the_end() -> None:
    text = "| Name | 数量 | Sum |\n|:--|:-:|--:|\n| 🍎 `a\\|b` | 漢字漢 | 1 |\n| c | x |\nbehind"
    assert lines(text) == [
        "Name   │  数量  │ Sum",
        "───────┼────────┼────",
        "🍎 a|b │ 漢字漢 │   1",
        "c      │   x    │",
        "",
        "behind",
    ]


def test_a_wide_table_is_wrapped_to_the_width() -> None:
    shown = lines("| a | b |\n|---|---|\n| one | two three four five sixsixsixsixsix |", 16)
    assert shown == [
        "a   │ b",
        "────┼───────────",
        "one │ two three",
        "    │ four five",
        "    │ sixsixsixs",
        "    │ ixsix",
    ]
    assert max(map(measure_width, shown)) <= 16


def test_table_that_cannot_fit_becomes_a_list_of_cells() -> None:
    row = "|".join(["something"] * 4)
    shown = lines(f"a|b|c|d\n-|-|-|-\n{row}\n{row}", 20)
    assert shown == [*[f"{name}: something" for name in "abcd"], "", *[f"{name}: something" for name in "abcd"]]


def test_later_rows_of_a_long_table_are_wrapped_into_the_first_columns() -> None:
    rows = "".join(f"| {number} | x |\n" for number in range(60))
    shown = lines(f"| a | b |\n|---|---|\n{rows}| 123456 | y |\n")
    assert len(shown) == 2 + 60 + 3
    assert shown[-3:] == ["12 │ y", "34 │", "56 │"]


def test_html_is_shown_as_text() -> None:
    assert lines("<details>\n  <b>*x*</b>\n</details>\n\n*y*") == ["<details>", "  <b>*x*</b>", "</details>", "", "y"]


def test_indented_code_is_shown_without_its_margin() -> None:
    assert lines("text\n\n    a\n\n      b\n\nbehind") == ["text", "", "a", "", "  b", "", "behind"]


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES.keys())
def test_output_has_no_padding_and_no_background_colours(theme: Theme) -> None:
    shown = render("# a\n\ntext *b*\n\n```python\nx = 1\n\n```\n\n- a\n\n  b\n\n> c\n\na|b\n-|-\n1|2", theme, 40)
    assert not re.search(r" (\x1b\[0m)?\n", shown)
    for style in re.findall(r"\x1b\[([0-9;]*)m", shown):
        numbers = [int(one) for one in re.sub(r"38;5;\d+", "38", style).split(";")]
        assert not [one for one in numbers if one == 7 or 40 <= one <= 49 or one >= 100]


def test_mono_theme_uses_no_colours() -> None:
    shown = render("# a\n~~b~~ `c` [d](e) **f**\n> g\n```python\ndef x(): 'y' # z\n```\n|a|\n|-|\n|b|", MONO, 40)
    assert set(re.findall(r"\x1b\[([0-9;]*)m", shown)) <= {"0", "1", "3", "4", "1;3", "1;4", "3;1"}
    assert "~~b~~ `c`" in shown


@pytest.mark.parametrize(("theme", "ground"), [(LIGHT, (255, 255, 255)), (DARK, (30, 30, 30))], ids=["light", "dark"])
def test_theme_has_enough_contrast_on_its_background(theme: Theme, ground: tuple[int, int, int]) -> None:
    code = "import os\n@a.b\nclass C(D):\n    '''doc'''\n    def f(self): # c\n        return f'{1.0}' + None\n"
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"
    text = (
        f"# a\n## b\n### c\n`d` [e](f) <g@h.test>\n> i\n```python\n{code}```\n```diff\n{diff}```\n```sh\nls -l $A\n```"
    )
    found = {int(one) for one in re.findall(r"38;5;(\d+)", render(text, theme, 80) + theme.error + theme.tool)}
    assert len(found) > 8
    assert {one: contrast_of_palette(one, ground) for one in found if contrast_of_palette(one, ground) < 4.5} == {}


def test_highlighting_libraries_are_loaded_only_for_fenced_code() -> None:
    program = """
import sys
from talaria.cli.markdown.stream import render
from talaria.cli.markdown.styled_text import THEMES
render("# a *b*\\n\\n- c\\n\\n```\\nplain\\n```\\n", THEMES["dark"], 80)
print(sorted({"rich", "markdown_it", "pygments", "prompt_toolkit"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
