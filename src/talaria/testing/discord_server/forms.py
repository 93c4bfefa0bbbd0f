"""Request bodies of the fake Discord, their validation, and its error answers."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

FILE_LIMIT = 10 * 1024 * 1024
VOICE = 1 << 13
_T = TypeVar("_T")


class DiscordRefusal(Exception):
    """An error answer."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"message": message, "code": code, **more}


def unauthorized() -> DiscordRefusal:
    """The token is not known."""
    return DiscordRefusal(401, 0, "401: Unauthorized")


def unknown(what: str) -> DiscordRefusal:
    """There is no such thing."""
    codes = {"Channel": 10003, "Message": 10008, "Emoji": 10014, "Interaction": 10062, "Application": 10002}
    return DiscordRefusal(404, codes[what], f"Unknown {what}")


def forbidden() -> DiscordRefusal:
    """The bot may not do this."""
    return DiscordRefusal(403, 50013, "Missing Permissions")


def bad_form(field: str, message: str) -> DiscordRefusal:
    """A request is not as it should be."""
    errors = {field: {"_errors": [{"code": "BASE_TYPE_BAD_LENGTH", "message": message}]}}
    return DiscordRefusal(400, 50035, "Invalid Form Body", errors=errors)


class Mentions(Struct, forbid_unknown_fields=True):
    """Allowed mentions of a message."""

    parse: list[str] | None = None
    users: list[str] | None = None
    roles: list[str] | None = None
    replied_user: bool = False


class Reference(Struct, forbid_unknown_fields=True):
    """The message being answered."""

    message_id: str | int
    channel_id: str | int = ""
    guild_id: str | int = ""
    fail_if_not_exists: bool = True
    type: int = 0


class AttachmentForm(Struct, forbid_unknown_fields=True):
    """A file as described by its message."""

    id: str | int
    filename: str = ""
    description: str | None = None
    duration_secs: float | None = None
    waveform: str = ""


class Option(Struct, forbid_unknown_fields=True):
    """An option of a menu."""

    label: str
    value: str
    description: str | None = None
    default: bool = False


class Component(Struct, forbid_unknown_fields=True):
    """A row, a button or a menu."""

    type: int
    components: list["Component"] = []
    style: int | None = None
    label: str = ""
    custom_id: str = ""
    disabled: bool = False
    options: list[Option] = []
    placeholder: str | None = None
    min_values: int = 1
    max_values: int = 1


class CreateMessage(Struct, forbid_unknown_fields=True):
    """A message to post."""

    content: str | None = None
    tts: bool = False
    nonce: str | int | None = None
    enforce_nonce: bool = False
    embeds: list[dict[str, Any]] | None = None
    allowed_mentions: Mentions | None = None
    message_reference: Reference | None = None
    components: list[Component] | None = None
    attachments: list[AttachmentForm] | None = None
    flags: int = 0
    sticker_ids: list[str] | None = None


class EditMessage(Struct, forbid_unknown_fields=True):
    """Changes of a message."""

    content: str | None = None
    embeds: list[dict[str, Any]] | None = None
    flags: int | None = None
    allowed_mentions: Mentions | None = None
    components: list[Component] | None = None
    attachments: list[AttachmentForm] | None = None
    tts: bool = False


class CreateThread(Struct, forbid_unknown_fields=True):
    """A thread to open, or a post in a forum."""

    name: str
    auto_archive_duration: int | None = None
    rate_limit_per_user: int | None = None
    type: int = 12
    invitable: bool | None = None
    message: CreateMessage | None = None


class CommandOption(Struct, forbid_unknown_fields=True):
    """An argument of a command."""

    type: int
    name: str
    description: str
    required: bool = False


class Command(Struct, forbid_unknown_fields=True):
    """A slash command."""

    name: str
    description: str = ""
    type: int = 1
    options: list[CommandOption] = []


class Callback(Struct, forbid_unknown_fields=True):
    """The answer to an interaction."""

    type: int
    data: dict[str, Any] | None = None


def parse_form(body: Any, kind: type[_T]) -> _T:
    """Return a request as its type, or refuse it."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise bad_form("body", str(error)) from error


def check_text(text: str | None) -> str:
    """Return a text as Discord shows it, without white space at both ends."""
    text = (text or "").strip()
    if len(text) > 2000:
        raise bad_form("content", "Must be 2000 or fewer in length.")
    return text


def check_components(rows: list[Component] | None) -> list[dict[str, Any]]:
    """Return what stands below a message."""
    names: list[str] = []
    for row in rows or []:
        if row.type != 1 or not 1 <= len(row.components) <= 5:
            raise bad_form("components", "A row has one to five components.")
        for one in row.components:
            _check_component(one)
            names.append(one.custom_id)
    if len(names) != len(set(names)) or len(rows or []) > 5:
        raise bad_form("components", "Component custom id cannot be duplicated")
    return [_row_to_wire(row) for row in rows or []]


def check_voice(form: CreateMessage) -> None:
    """Refuse a voice note that is not alone, or does not tell how it sounds."""
    files = form.attachments or []
    attachment = len(files) == 1 and files[0].duration_secs is not None and files[0].waveform
    if form.flags & VOICE and (not attachment or form.content or form.components):
        raise DiscordRefusal(400, 50160, "Voice messages must have a single audio attachment and nothing else.")


def check_commands(commands: list[Command]) -> None:
    """Refuse commands that Discord would not offer."""
    names = [one.name for one in commands]
    if len(names) != len(set(names)) or len(names) > 100:
        raise bad_form("name", "Application command names must be unique")
    for one in commands:
        if not (1 <= len(one.name) <= 32 and one.name == one.name.lower() and " " not in one.name):
            raise bad_form("name", "Command name is invalid")
        if not 1 <= len(one.description) <= 100:
            raise bad_form("description", "Must be between 1 and 100 in length.")


def _check_component(one: Component) -> None:
    if not 1 <= len(one.custom_id) <= 100:
        raise bad_form("custom_id", "Must be between 1 and 100 in length.")
    if one.type == 2 and not (one.style in (1, 2, 3, 4) and 1 <= len(one.label) <= 80):
        raise bad_form("label", "Must be between 1 and 80 in length.")
    values = [option.value for option in one.options]
    if one.type == 3 and (not 1 <= len(values) <= 25 or len(values) != len(set(values))):
        raise bad_form("options", "Must be between 1 and 25 in length.")
    if any(not (1 <= len(option.label) <= 100 and 1 <= len(option.value) <= 100) for option in one.options):
        raise bad_form("options", "Must be between 1 and 100 in length.")
    if one.type not in (2, 3):
        raise bad_form("type", "Value must be one of (2, 3).")


def _row_to_wire(row: Component) -> dict[str, Any]:
    elements: list[dict[str, Any]] = []
    for one in row.components:
        if one.type == 2:
            elements.append({"type": 2, "style": one.style, "label": one.label, "custom_id": one.custom_id})
        else:
            options = [{"label": option.label, "value": option.value} for option in one.options]
            elements.append({"type": 3, "custom_id": one.custom_id, "options": options})
    return {"type": 1, "components": elements}
