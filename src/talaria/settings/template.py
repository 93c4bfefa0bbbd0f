"""A config.toml to begin with: every key with its meaning, none of them set."""

from itertools import groupby

import msgspec

from talaria.settings.fields import Field, Model
from talaria.settings.keys import ANY_NAME, dotted
from talaria.settings.text import value_from_text


def template(model: Model) -> str:
    """The text of a file that changes nothing and explains everything."""
    parts = ["# Remove the # before a key to set it. `talaria config check` says whether all is well.\n"]
    for table, fields in groupby(model.fields(), key=lambda field: field.path[:-1]):
        parts.append(f"\n{'# ' if ANY_NAME in table else ''}[{dotted(table)}]\n")
        parts += [_explained(field) for field in fields]
    return "".join(parts)


def _explained(field: Field) -> str:
    return f"\n# {field.doc}\n# Expected: {field.expected}.\n# {field.path[-1]} = {_shown_default(field)}\n"


def _shown_default(field: Field) -> str:
    """Return the default, or an example where nothing is the default: TOML has no word for it."""
    value = None if field.required else field.default
    if value is None and not field.required:
        value = value_from_text("1", field.annotation)
    return msgspec.json.encode(value).decode()
