"""Routes of the settings: forms from the schema, and the text of the file; for the owner only."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import NotFound
from talaria.http.errors import Problem, make_conflict
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.settings.edit import FileChanged, check_text, edit_values, read_text, save_text
from talaria.settings.errors import Fault, SettingsInvalid
from talaria.settings.load import LoadedSettings, load
from talaria.settings.profiles import Profile
from talaria.settings.schema import ANY_NAME, SchemaField, SchemaTable, named_type
from talaria.settings.schema_views import FieldKind, shape_of
from talaria.web.front_door import AGENT_OWNER, WebError, WebRequest

_TAG = "web"
_LONGEST_TEXT = 1_000_000
_Version = Annotated[str, Meta(max_length=64)]
ValueSource = Literal["default", "file", "environment"]


class SettingView(Struct, frozen=True, kw_only=True):
    """A setting as a form shows it.

    ``entry`` is the name of its table among named ones. A secret has no ``value``, only what may be ``shown`` of it; a
    secret table has its names without values. ``location`` is the line of the file or the variable that sets it.
    """

    key: str
    name: str
    entry: str
    about: str
    kind: FieldKind
    item: FieldKind | None
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    optional: bool
    expected: str
    value: Any
    shown: str
    default: Any
    secret: bool
    live: bool
    source: ValueSource
    location: str
    variable: str


class SettingSection(Struct, frozen=True, kw_only=True):
    """A section; ``named`` ones hold tables with names, of which ``template`` has the settings of a new one."""

    name: str
    about: str
    named: bool
    entries: tuple[str, ...]
    settings: list[SettingView]
    template: list[SettingView]


class FaultView(Struct, frozen=True, kw_only=True):
    """A problem of the settings, with its key and line if it has one."""

    problem: str
    key: str = ""
    line: int | None = None


class SettingsView(Struct, frozen=True, kw_only=True):
    """All settings; ``restart`` are those whose new values need a restart of the server."""

    version: str
    file: str
    sections: list[SettingSection]
    faults: list[FaultView]
    restart: list[str]


class SettingsEdit(Struct, frozen=True):
    """New values by key; ``null`` restores a default. ``version`` is that of the settings on the page."""

    values: Annotated[dict[str, Any], Meta(min_length=1, max_length=200)]
    version: _Version


class SettingsSaved(Struct, frozen=True):
    """Settings were saved: the new version of the file, and what the person should know."""

    version: str
    notes: list[str]


class SettingsRefused(Struct, frozen=True):
    """Nothing was saved, because of these faults."""

    error: WebError
    faults: list[FaultView]


class ConfigTextView(Struct, frozen=True):
    """The text of the file, with masked secrets."""

    text: str
    version: str
    file: str


class ConfigTextRequest(Struct, frozen=True):
    """An edited text of the file, and the version that it is based on."""

    text: Annotated[str, Meta(max_length=_LONGEST_TEXT)]
    version: _Version = ""


class ConfigTextCheck(Struct, frozen=True):
    """Effect of saving a text: its faults, and the changed lines as a unified diff."""

    faults: list[FaultView]
    diff: tuple[str, ...]


class SettingsRoutes:
    """The settings of a profile; ``reload`` applies what was written."""

    def __init__(self, profile: Profile, environment: Mapping[str, str], reload: Callable[[], None]) -> None:
        self._profile = profile
        self._environment = environment
        self._reload = reload
        self._started = load(profile, environment)

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/settings", handler=self._show, summary="List all settings",
                  scope=AGENT_OWNER, reply_type=SettingsView, tag=_TAG),
            Route(method="PATCH", path="/web/settings", handler=self._edit, summary="Change settings",
                  scope=AGENT_OWNER, takes=SettingsEdit, reply_type=SettingsSaved, tag=_TAG),
            Route(method="GET", path="/web/settings/file", handler=self._show_file, summary="Show the settings file",
                  scope=AGENT_OWNER, reply_type=ConfigTextView, tag=_TAG),
            Route(method="POST", path="/web/settings/file/check", handler=self._check_file,
                  summary="Check a new text of the settings file", scope=AGENT_OWNER, takes=ConfigTextRequest,
                  reply_type=ConfigTextCheck, tag=_TAG),
            Route(method="PUT", path="/web/settings/file", handler=self._save_file,
                  summary="Replace the settings file", scope=AGENT_OWNER, takes=ConfigTextRequest,
                  reply_type=SettingsSaved, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        return make_json_reply(await asyncio.to_thread(self._read))

    async def _edit(self, request: WebRequest) -> Reply:
        edit = request.read(SettingsEdit)
        return await self._save(lambda: edit_values(self._profile, edit.values, edit.version), edit.values)

    async def _show_file(self, request: WebRequest) -> Reply:
        shown = await asyncio.to_thread(read_text, self._profile)
        return make_json_reply(ConfigTextView(shown.text, shown.version, str(self._profile.config_file)))

    async def _check_file(self, request: WebRequest) -> Reply:
        checked = await asyncio.to_thread(check_text, self._profile, request.read(ConfigTextRequest).text)
        return make_json_reply(ConfigTextCheck([_build_fault_view(one) for one in checked.faults], checked.diff))

    async def _save_file(self, request: WebRequest) -> Reply:
        config_text = request.read(ConfigTextRequest)
        return await self._save(lambda: save_text(self._profile, config_text.text, config_text.version), ())

    async def _save(self, write: Callable[[], object], keys: Iterable[str]) -> Reply:
        """Write the file and apply it, or return why that can't be done."""
        before = load(self._profile, self._environment)
        try:
            await asyncio.to_thread(write)
        except SettingsInvalid as error:
            refused = WebError(error.faults[0].problem, "invalid_settings")
            body = SettingsRefused(refused, [_build_fault_view(one) for one in error.faults])
            return make_json_reply(body, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        except FileChanged as error:
            raise make_conflict(str(error), code="settings_changed") from error
        except NotFound as error:
            raise Problem(str(error), code="unknown_setting") from error
        self._reload()
        after = load(self._profile, self._environment)
        return make_json_reply(SettingsSaved(read_text(self._profile).version, _explain(before, after, keys)))

    def _read(self) -> SettingsView:
        loaded = load(self._profile, self._environment)
        by_section: dict[str, list[SettingView]] = {name: [] for name in loaded.model.sections}
        for field, value in loaded.values():
            by_section[field.path[0]].append(_build_setting_view(field, value, loaded))
        return SettingsView(
            version=read_text(self._profile).version,
            file=str(self._profile.config_file),
            sections=[_build_section_view(name, views, loaded) for name, views in by_section.items()],
            faults=[_build_fault_view(one) for one in loaded.faults],
            restart=_list_changed(self._started, loaded),
        )


def _build_section_view(name: str, views: list[SettingView], loaded: LoadedSettings) -> SettingSection:
    table = loaded.model.root.children[name]
    assert isinstance(table, SchemaTable)
    named = named_type(table.model)
    template = table.children.get(ANY_NAME)
    fields = template.fields() if isinstance(template, SchemaTable) else ()
    return SettingSection(
        name=name,
        about=_take_first_line(named or table.model),
        named=named is not None,
        entries=tuple(dict.fromkeys(view.entry for view in views if view.entry)),
        settings=views,
        template=[_build_setting_view(field, field.default, loaded) for field in fields],
    )


def _build_setting_view(field: SchemaField, value: Any, loaded: LoadedSettings) -> SettingView:
    shape, origin = shape_of(field), loaded.origin(field.path)
    from_environment = field.path in loaded.overrides.variables
    return SettingView(
        key=field.key,
        name=".".join(field.path[1:] if len(field.path) < 3 else field.path[2:]),
        entry=field.path[1] if len(field.path) > 2 else "",
        about=field.doc,
        kind=shape.kind,
        item=shape.item,
        choices=shape.choices,
        minimum=shape.minimum,
        maximum=shape.maximum,
        optional=shape.optional,
        expected=field.expected,
        value=_hide_secret(field, value),
        shown=field.format_value(value),
        default=None if field.required else field.default,
        secret=field.secret,
        live=field.live,
        source="environment" if from_environment else "default" if origin.location is None else "file",
        location=_describe_location(origin.location, from_environment=from_environment),
        variable=field.variable,
    )


def _hide_secret(field: SchemaField, value: Any) -> Any:
    """Return a value for a form; of a secret nothing, of a table of secrets the names."""
    if not field.secret:
        return msgspec.to_builtins(value) if value is not msgspec.NODEFAULT else None
    return dict.fromkeys(value, "") if isinstance(value, dict) else None


def _describe_location(location: Any, *, from_environment: bool) -> str:
    if location is None:
        return ""
    return location.file.rpartition(" ")[2] if from_environment else f"line {location.line}" if location.line else ""


def _build_fault_view(fault: Fault) -> FaultView:
    return FaultView(problem=fault.problem, key=fault.key, line=fault.line)


def _take_first_line(kind: Any) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _list_changed(before: LoadedSettings, after: LoadedSettings) -> list[str]:
    """Return the settings with another value that a running process doesn't apply."""
    old = {field.key: value for field, value in before.values()}
    new = {field.key: (field, value) for field, value in after.values()}
    changed = [key for key, (field, value) in new.items() if not field.live and old.get(key, field.default) != value]
    gone = [field.key for field, value in before.values() if field.key not in new and not field.live]
    return [*changed, *(key for key in gone if old[key] is not None)]


def _explain(before: LoadedSettings, after: LoadedSettings, keys: Iterable[str]) -> list[str]:
    """Return sentences about what a change has no effect on yet."""
    overridden = [loaded_name for key in keys if (loaded_name := _find_variable(after, key))]
    notes = [f"The environment variable {name} is set and overrides the file." for name in overridden]
    waiting = _list_changed(before, after)
    if waiting:
        names = ", ".join(f"`{key}`" for key in waiting)
        notes.append(f"{names} {'takes' if len(waiting) == 1 else 'take'} effect after a restart.")
    return notes


def _find_variable(loaded: LoadedSettings, key: str) -> str:
    return next((name for path, name in loaded.overrides.variables.items() if ".".join(path) == key), "")
