import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, given
from hypothesis import strategies as st

from talaria.settings.toml_lines import KeyPath, key_lines

DOCUMENT = """\
# first = 1
title = "a # b"   # not = "here"
a.b.c = 1
'quoted key' = '''
x = 2
[not-a-table]
'''
"es\\"caped" = \"\"\"
\\\"\"\"y = 3
four quotes\"\"\"\"

[ table . "in.ner" ]
list = [
  1, # one
  "]", [2, 3],
  { x = 1, y.z = "}" },
]
when = 1979-05-27 07:32:00Z

[[many]]
name = "first"
[many.sub]
deep = true
[[many]]
name = "second"
[[many.more]]
last = { }
"""


def every_path(value: Any, path: KeyPath = ()) -> set[KeyPath]:
    paths = {path} if path else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        paths |= every_path(item, (*path, name))
    return paths


def test_every_key_has_the_line_of_its_first_occurrence() -> None:
    lines = key_lines(DOCUMENT)
    assert set(lines) == every_path(tomllib.loads(DOCUMENT))
    assert lines[("title",)] == 2
    assert lines[("a",)] == lines[("a", "b", "c")] == 3
    assert lines[("quoted key",)] == 4
    assert lines[('es"caped',)] == 8
    assert lines[("table",)] == lines[("table", "in.ner")] == 12
    assert lines[("table", "in.ner", "list", 0)] == 14
    assert lines[("table", "in.ner", "list", 3, "y", "z")] == 16
    assert lines[("table", "in.ner", "when")] == 18
    assert lines[("many",)] == lines[("many", 0)] == 20
    assert lines[("many", 0, "sub", "deep")] == 23
    assert lines[("many", 1, "name")] == 25
    assert lines[("many", 1, "more", 0, "last")] == 27


def test_windows_line_end_counts_as_one_line() -> None:
    assert key_lines("a = 1\r\n\r\n[t]\r\nb = 2\r\n") == {("a",): 1, ("t",): 3, ("t", "b"): 4}


def test_an_empty_text_has_no_keys() -> None:
    assert key_lines("") == {}
    assert key_lines("\n# only a comment") == {}


bare_keys = st.text("abcXYZ019_-", min_size=1, max_size=6)
any_keys = bare_keys | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=6)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.datetimes()
    | st.dates()
)
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_keys, inner, max_size=3), max_leaves=12
)


@pytest.mark.slow
@given(st.dictionaries(any_keys, nested, max_size=5))
def test_keys_equal_those_of_tomllib_for_any_tomlkit_output(data: dict[str, Any]) -> None:
    text = tomlkit.dumps(data)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(condition=False)
    assert set(key_lines(text)) == every_path(table)


pieces = st.sampled_from(
    [
        "{} = 1",
        "{}.x.y = [ 1,\n  2, # ], {{ =\n  [ ] ]",
        '{} = """\n[a]\nb = 1\\"""" # end',
        "{} = '''a'''''",
        '{} = ""  # c = 1',
        "{} = {{ a = [1], 'b c' = {{ d = 1 }} }}",
        "[{}]",
        "[{}.'x.y'.z]",
        "[[{}]]",
        "[[{}.z]]\nq = 1\n[{}.z.w]",
        "# [comment]\n\n{} = 1.5e3",
        "  {}\t=\ttrue",
    ]
)


@given(st.lists(pieces, max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_each_statement_is_found_on_its_own_line(statements: list[str], line_end: str) -> None:
    text, expected = "", {}
    for number, statement in enumerate(statements):
        comments = statement.count("\n\n") * 2
        expected[f"k{number}"] = text.count("\n") + 1 + comments
        text += statement.format(f"k{number}", f"k{number}") + "\n"
    text = text.replace("\n", line_end)
    lines = key_lines(text)
    assert set(lines) == every_path(tomllib.loads(text))
    found = {path[-1]: line for path, line in lines.items() if path[-1] in expected}
    assert found == expected
