"""Settings schema for people: a config.toml that documents every key, and shapes of fields for forms."""

from itertools import groupby
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, inspect, structs

from talaria.settings.schema import ANY_NAME, SchemaField, SettingsSchema, format_key
from talaria.settings.value_text import parse_value

FieldKind = Literal["switch", "whole", "number", "text", "choice", "list", "table"]


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


class FieldShape(Struct, frozen=True, kw_only=True):
    """Kind of a value, with choices and limits if it has any.

    ``optional`` means that it may be left empty; ``item`` is the kind of each item or value of a list or table.
    """

    kind: FieldKind
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    optional: bool = False
    item: FieldKind | None = None


def shape_of(field: SchemaField) -> FieldShape:
    """Return the shape of a setting; choices are in the order in which they are declared."""
    shape = _derive_shape(inspect.type_info(field.annotation))
    annotation = field.annotation
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return structs.replace(shape, choices=tuple(map(str, get_args(annotation))))
    return shape


def _derive_shape(info: inspect.Type) -> FieldShape:
    match info:
        case inspect.Metadata():
            return _derive_shape(info.type)
        case inspect.BoolType():
            return FieldShape(kind="switch")
        case inspect.IntType() | inspect.FloatType():
            kind: FieldKind = "whole" if isinstance(info, inspect.IntType) else "number"
            return FieldShape(
                kind=kind, minimum=_choose_limit(info.ge, info.gt), maximum=_choose_limit(info.le, info.lt)
            )
        case inspect.LiteralType():
            return FieldShape(kind="choice", choices=tuple(map(str, info.values)))
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return FieldShape(kind="list", item=_derive_shape(info.item_type).kind)
        case inspect.DictType():
            return FieldShape(kind="table", item=_derive_shape(info.value_type).kind)
        case inspect.UnionType():
            return _derive_union_shape(info)
        case _:
            return FieldShape(kind="text")


def _derive_union_shape(info: inspect.UnionType) -> FieldShape:
    """Return the shape of a union: a single type or nothing, or choices that include true and false."""
    types = [one for one in info.types if not isinstance(one, inspect.NoneType)]
    optional = len(types) < len(info.types)
    if len(types) == 1:
        return structs.replace(_derive_shape(types[0]), optional=optional)
    choices: list[str] = []
    for one in types:
        shape = _derive_shape(one)
        choices += ("true", "false") if shape.kind == "switch" else shape.choices
    return FieldShape(kind="choice", choices=tuple(choices), optional=optional) if choices else FieldShape(kind="text")


def _choose_limit(*limits: Any) -> float | None:
    return next((float(one) for one in limits if one is not None), None)
