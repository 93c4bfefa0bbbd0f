"""Template for a config.toml: every key with its description, none of them set."""

from itertools import groupby

import msgspec

from talaria.settings.schema import ANY_NAME, SchemaField, SettingsSchema, format_key
from talaria.settings.value_text import parse_value


def render_template(model: SettingsSchema) -> str:
    """Return a file that documents all settings and changes none."""
    parts = ["# Remove the # before a key to set it. `talaria config check` validates the file.\n"]
    for table, fields in groupby(model.fields(), key=lambda field: field.path[:-1]):
        parts.append(f"\n{'# ' if ANY_NAME in table else ''}[{format_key(table)}]\n")
        parts += [_render_field(field) for field in fields]
    return "".join(parts)


def _render_field(field: SchemaField) -> str:
    return f"\n# {field.doc}\n# Expected: {field.expected}.\n# {field.path[-1]} = {_render_default(field)}\n"


def _render_default(field: SchemaField) -> str:
    """Return the default, or an example if there is none, because TOML has no null."""
    value = None if field.required else field.default
    if value is None and not field.required:
        value = parse_value("1", field.annotation)
    return msgspec.json.encode(value).decode()
