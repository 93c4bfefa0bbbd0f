"""The template language: fields, defaults and cuts. Templates run no code, and rendering never fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from talaria.core.errors import Refused
from talaria.platforms.webhook.templates import Event, Rendered, parse_template

EVENT = Event(
    {"x-github-event": "push"},
    {
        "repository": {"name": "harbour", "private": False, "size": 12},
        "commits": [{"message": "One\nTwo"}, {"message": "Three"}],
        "nothing": None,
        "headers": {"x-github-event": "of the body"},
        "body": "inner",
        "0": "zero",
    },
)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("no places", "no places"),
        ("{{ repository.name }}!", "harbour!"),
        ("{{repository.name}}{{repository.size}}", "harbour12"),
        ("{{ repository.private }}", "false"),
        ("{{ commits.1.message }}", "Three"),
        ("{{ commits.0 }}", '{"message":"One\\nTwo"}'),
        ("{{ headers.X-GitHub-Event }}", "push"),
        ("{{ body.headers.x-github-event }}", "of the body"),
        ("{{ body.body }} {{ 0 }}", "inner zero"),
        ('{{ nothing | default "none" }} {{ gone.far | default: "" }}.', "none ."),
        ("{{ repository.name | cut 4 }} {{ repository.name | cut: 7 }}", "harb… harbour"),
        ('{{ repository.name | default "x" | cut 1 }}', "h…"),
        ("{ repository.name } }} {{", "{ repository.name } }} {{"),
    ],
)
def test_template_fields_are_filled_in(template: str, text: str) -> None:
    assert parse_template(template).render(EVENT) == Rendered(text)


@pytest.mark.parametrize(
    "path", ["gone", "repository.gone", "commits.7", "commits.x", "commits.-1", "repository.name.first", "nothing",
             "headers.gone", "__class__", "repository.__class__"]
)  # fmt: skip
def test_a_missing_field_is_left_out_and_reported(path: str) -> None:
    assert parse_template(f"<{{{{ {path} }}}}>").render(EVENT) == Rendered("<>", (path,))


@pytest.mark.parametrize(
    "expression",
    ["", " ", "a b", "a..b", ".a", "a()", "a | upper", "a | cut", 'a | cut "3"', "a | default 3", "a | cut 3 x",
     "a | cut -3", "a; b", "'a'", 'a | default "x', "a[0]", "a || b"],
)  # fmt: skip
def test_invalid_expression_is_refused_and_quoted(expression: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_template(f"before {{{{{expression}}}}} behind")
    assert f"{{{{{expression}}}}}" in str(refused.value)


def test_values_are_never_read_as_templates() -> None:
    event = Event({}, {"a": "{{ b }}", "b": "secret"})
    assert parse_template("{{ a }}").render(event).text == "{{ b }}"


def test_null_characters_are_replaced() -> None:
    assert parse_template("{{ a }}").render(Event({}, {"a": "x\0y"})).text == "x\N{REPLACEMENT CHARACTER}y"


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(some.characters(exclude_categories=["Cs"])),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(["a", "b", "0"]), inner),
    max_leaves=8,
)


@given(_JSON, some.from_regex(r"[ab0*_-]{1,2}(\.[ab0]{1,2}){0,3}", fullmatch=True))
def test_rendering_never_fails_for_any_event_and_path(body: object, path: str) -> None:
    try:
        template = parse_template(f"{{{{ {path} }}}}")
    except Refused:
        return
    rendered = template.render(Event({}, body))
    assert rendered.missing in ((), (path,))
