"""The methods of the fake Web API: their parameters, the validation of blocks, and their effects."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from talaria.testing.slack_server.world import BOT_ID, Message, MethodError, World

MOST_BLOCKS = 50
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Short: TypeAlias = Annotated[str, Meta(min_length=1, max_length=75)]
Paragraph: TypeAlias = Annotated[str, Meta(min_length=1, max_length=3000)]
Address: TypeAlias = Annotated[str, Meta(pattern=r"^(https?://|mailto:)\S", max_length=3000)]
_LONGEST_TEXT = 40_000
_EMOJI = re.compile(r"[a-z0-9_+'-]+(::skin-tone-[2-6])?")
_UNKNOWN_EMOJI = frozenset({"no_such_emoji"})
_METADATA = {"event_type", "event_payload"}
Parameters = dict[str, Any]
Answer = dict[str, Any]
_MESSAGE = ("blocks", "metadata", "text", "thread_ts", "unfurl_links", "unfurl_media")
_PAGE = ("include_all_metadata", "limit", "oldest")
_REACTION = ("channel", "timestamp", "name")
_THREAD = ("channel_id", "thread_ts")


class _Strict(Struct, forbid_unknown_fields=True):
    """A struct that rejects unknown fields."""


class _Style(_Strict):
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False


class _TextElement(_Strict, tag="text"):
    text: Text
    style: _Style | None = None


class _Link(_Strict, tag="link"):
    url: Address
    text: str = ""
    style: _Style | None = None


class _Section(_Strict, tag="rich_text_section"):
    elements: list[_TextElement | _Link]


class _Preformatted(_Strict, tag="rich_text_preformatted"):
    elements: Annotated[list[_TextElement | _Link], Meta(min_length=1)]
    border: int = 0


class _Quote(_Strict, tag="rich_text_quote"):
    elements: Annotated[list[_TextElement | _Link], Meta(min_length=1)]


class _List(_Strict, tag="rich_text_list"):
    style: Literal["bullet", "ordered"]
    elements: Annotated[list[_Section], Meta(min_length=1)]
    indent: Annotated[int, Meta(ge=0, le=8)] = 0
    offset: Annotated[int, Meta(ge=0)] = 0


class _RichText(_Strict, tag="rich_text"):
    elements: Annotated[list[_Section | _Preformatted | _Quote | _List], Meta(min_length=1)]
    block_id: str = ""


class _Divider(_Strict, tag="divider"):
    block_id: str = ""


class _Cell(_Strict, tag="raw_text"):
    text: Text


class _Column(_Strict):
    align: Literal["left", "center", "right"] = "left"
    is_wrapped: bool = False


class _Table(_Strict, tag="table"):
    rows: Annotated[list[Annotated[list[_Cell], Meta(min_length=1, max_length=20)]], Meta(min_length=1, max_length=100)]
    column_settings: Annotated[list[_Column], Meta(max_length=20)] = []
    block_id: str = ""


class _Plain(_Strict, tag="plain_text"):
    text: Paragraph
    emoji: bool = True


class _Mrkdwn(_Strict, tag="mrkdwn"):
    text: Paragraph
    verbatim: bool = False


class _Label(_Strict, tag="plain_text"):
    text: Short
    emoji: bool = True


class _TextSection(_Strict, tag="section"):
    text: _Plain | _Mrkdwn
    block_id: str = ""


class _Button(_Strict, tag="button"):
    text: _Label
    action_id: Annotated[str, Meta(min_length=1, max_length=255)]
    value: Annotated[str, Meta(max_length=2000)] = ""
    style: Literal["primary", "danger"] | None = None


class _Option(_Strict):
    text: _Label
    value: Annotated[str, Meta(min_length=1, max_length=150)]


class _Select(_Strict, tag="static_select"):
    action_id: Annotated[str, Meta(min_length=1, max_length=255)]
    options: Annotated[list[_Option], Meta(min_length=1, max_length=100)]
    placeholder: _Label | None = None


class _Actions(_Strict, tag="actions"):
    elements: Annotated[list[_Button | _Select], Meta(min_length=1, max_length=25)]
    block_id: str = ""


Block: TypeAlias = _RichText | _Divider | _Table | _TextSection | _Actions


def check_blocks(blocks: object) -> list[dict[str, Any]]:
    """Return blocks as they are, or refuse them."""
    try:
        read = msgspec.convert(blocks, Annotated[list[Block], Meta(max_length=MOST_BLOCKS)])
    except msgspec.ValidationError as error:
        raise MethodError("invalid_blocks", errors=[str(error)]) from error
    if sum(isinstance(block, _Table) for block in read) > 1:
        raise MethodError("invalid_blocks", errors=["only one table is allowed"])
    names = [one.action_id for block in read if isinstance(block, _Actions) for one in block.elements]
    if len(names) != len(set(names)):
        raise MethodError("invalid_blocks", errors=["an action_id is there twice"])
    return msgspec.convert(blocks, list[dict[str, Any]])


def choices_of(blocks: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the choices below a message: each label with the value it sends."""
    found = []
    for element in (one for block in blocks if block["type"] == "actions" for one in block["elements"]):
        action = {"action_id": element["action_id"], "type": element["type"]}
        if element["type"] == "button":
            found.append((element["text"]["text"], action | {"value": element.get("value", "")}))
        else:
            found += [(one["text"]["text"], action | {"selected_option": one}) for one in element["options"]]
    return found


class Method(Struct, frozen=True):
    """A method: its function, required scope, required and optional parameters."""

    run: Callable[[World, Parameters], Answer]
    scope: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


def auth_test(world: World, _: Parameters) -> Answer:
    """Return the account of the app."""
    return {
        "url": "https://tests.example/",
        "team": "Tests",
        "team_id": "T0TESTS",
        "user": world.bot.name,
        "user_id": world.bot.id,
        "bot_id": BOT_ID,
    }


def post_message(world: World, parameters: Parameters) -> Answer:
    """Post a message of the app."""
    channel = world.channel(parameters["channel"])
    text, blocks = parameters.get("text") or "", check_blocks(parameters.get("blocks") or [])
    if not text.strip() and not blocks:
        raise MethodError("no_text")
    if len(text) > _LONGEST_TEXT:
        raise MethodError("msg_too_long")
    metadata = parameters.get("metadata") or {}
    if metadata and set(metadata) != _METADATA:
        raise MethodError("invalid_metadata_format")
    thread = parameters.get("thread_ts") or ""
    if thread and channel.find(thread) is None:
        raise MethodError("thread_not_found")
    message = Message(world.stamp(), world.bot.id, text, thread, blocks, metadata=metadata, bot=True)
    channel.messages.append(message)
    return {"channel": channel.id, "ts": message.ts, "message": world.shown(message)}


def update(world: World, parameters: Parameters) -> Answer:
    """Change a message of the app."""
    message = world.message(parameters["channel"], parameters["ts"])
    if not message.bot:
        raise MethodError("cant_update_message")
    text = parameters.get("text") or ""
    if not text.strip() and not parameters.get("blocks"):
        raise MethodError("no_text")
    if len(text) > _LONGEST_TEXT:
        raise MethodError("msg_too_long")
    message.blocks, message.text = check_blocks(parameters.get("blocks") or []), text
    message.edits += 1
    return {"channel": parameters["channel"], "ts": message.ts, "text": text}


def add_reaction(world: World, parameters: Parameters) -> Answer:
    """Put a mark of the app on a message."""
    message, name = world.message(parameters["channel"], parameters["timestamp"]), str(parameters["name"])
    if not _EMOJI.fullmatch(name) or name in _UNKNOWN_EMOJI:
        raise MethodError("invalid_name")
    if world.bot.id in message.reactions.get(name, []):
        raise MethodError("already_reacted")
    message.reactions.setdefault(name, []).append(world.bot.id)
    return {}


def remove_reaction(world: World, parameters: Parameters) -> Answer:
    """Take a mark of the app away."""
    message, name = world.message(parameters["channel"], parameters["timestamp"]), str(parameters["name"])
    if world.bot.id not in message.reactions.get(name, []):
        raise MethodError("no_reaction")
    message.reactions[name].remove(world.bot.id)
    if not message.reactions[name]:
        del message.reactions[name]
    return {}


def get_reactions(world: World, parameters: Parameters) -> Answer:
    """Return the reactions to a message."""
    message = world.message(parameters["channel"], parameters["timestamp"])
    return {"type": "message", "channel": parameters["channel"], "message": world.shown(message)}


def user_info(world: World, parameters: Parameters) -> Answer:
    """Return a person's profile."""
    user = world.users.get(parameters["user"])
    if user is None:
        raise MethodError("user_not_found")
    profile = {"display_name": "", "real_name": user.name}
    return {"user": {"id": user.id, "name": user.name.lower(), "real_name": user.name, "profile": profile}}


def channel_info(world: World, parameters: Parameters) -> Answer:
    """Return the properties of a channel."""
    channel = world.channel(parameters["channel"], joined=False)
    named = {} if channel.kind == "im" else {"name": channel.name}
    joined = (
        {} if channel.kind == "im" else {"is_member": world.bot.id in channel.members, "is_archived": channel.archived}
    )
    return {"channel": {"id": channel.id, "is_im": channel.kind == "im"} | joined | named}


def history(world: World, parameters: Parameters) -> Answer:
    """Return the latest messages of a channel, the newest first."""
    messages = [one for one in world.channel(parameters["channel"]).messages if not one.thread_ts]
    return {"messages": _make_page(world, parameters, list(reversed(messages)))}


def replies(world: World, parameters: Parameters) -> Answer:
    """Return the messages of a thread, the oldest first."""
    messages = [
        one for one in world.channel(parameters["channel"]).messages if parameters["ts"] in (one.ts, one.thread_ts)
    ]
    if not messages:
        raise MethodError("thread_not_found")
    return {"messages": _make_page(world, parameters, messages)}


def open_channel(world: World, parameters: Parameters) -> Answer:
    """Return the private chat with a person."""
    if parameters["users"] not in world.users:
        raise MethodError("user_not_found")
    return {"channel": {"id": world.channel(parameters["users"]).id}}


def upload_url(world: World, parameters: Parameters) -> Answer:
    """Reserve space for a file."""
    if not str(parameters["length"]).isdecimal() or int(parameters["length"]) < 1:
        raise MethodError("invalid_arguments")
    file = world.add_file(parameters["filename"], int(parameters["length"]))
    return {"file_id": file.id, "upload_url": f"{world.url}/upload/v1/{file.id}"}


def complete_upload(world: World, parameters: Parameters) -> Answer:
    """Share files that were uploaded, all in one message."""
    files = [world.files.get(str(one.get("id"))) for one in parameters["files"]]
    found = [one for one in files if one is not None and one.data is not None]
    if not found or len(found) != len(files):
        raise MethodError("file_not_found")
    channel = world.channel(parameters.get("channel_id"))
    thread = parameters.get("thread_ts") or ""
    if thread and channel.find(thread) is None:
        raise MethodError("invalid_thread_ts")
    channel.messages.append(Message(world.stamp(), world.bot.id, "", thread, files=found, bot=True))
    return {"files": [{"id": one.id, "title": one.name} for one in found]}


def file_info(world: World, parameters: Parameters) -> Answer:
    """Return the address of a file."""
    file = world.files.get(str(parameters["file"]))
    if file is None:
        raise MethodError("file_not_found")
    return {"file": file.shown(world.url)}


def _make_assistant_method(name: str) -> Callable[[World, Parameters], Answer]:
    def show(world: World, parameters: Parameters) -> Answer:
        channel = world.channel(parameters["channel_id"])
        if channel.find(parameters["thread_ts"]) is None:
            raise MethodError("invalid_thread_ts")
        world.assistant_views.append((name, parameters))
        return {}

    return show


METHODS = {
    "auth.test": Method(auth_test, ""),
    "chat.postMessage": Method(post_message, "chat:write", ("channel",), _MESSAGE),
    "chat.update": Method(update, "chat:write", ("channel", "ts"), ("text", "blocks")),
    "reactions.add": Method(add_reaction, "reactions:write", _REACTION),
    "reactions.remove": Method(remove_reaction, "reactions:write", _REACTION),
    "reactions.get": Method(get_reactions, "reactions:read", ("channel", "timestamp"), ("full",)),
    "users.info": Method(user_info, "users:read", ("user",)),
    "conversations.info": Method(channel_info, "channels:read", ("channel",)),
    "conversations.history": Method(history, "channels:history", ("channel",), _PAGE),
    "conversations.replies": Method(replies, "channels:history", ("channel", "ts"), _PAGE),
    "conversations.open": Method(open_channel, "im:write", ("users",)),
    "files.getUploadURLExternal": Method(upload_url, "files:write", ("filename", "length")),
    "files.completeUploadExternal": Method(complete_upload, "files:write", ("files",), ("channel_id", "thread_ts")),
    "files.info": Method(file_info, "files:read", ("file",)),
    "assistant.threads.setStatus": Method(_make_assistant_method("status"), "chat:write", (*_THREAD, "status")),
    "assistant.threads.setTitle": Method(_make_assistant_method("title"), "assistant:write", (*_THREAD, "title")),
    "assistant.threads.setSuggestedPrompts": Method(
        _make_assistant_method("prompts"), "assistant:write", (*_THREAD, "prompts")
    ),
}


def _make_page(world: World, parameters: Parameters, messages: list[Message]) -> list[Answer]:
    includes_metadata = parameters.get("include_all_metadata") in (True, "1", "true")
    page = [one for one in messages if one.ts > parameters.get("oldest", "")][: int(parameters.get("limit", 100))]
    return [
        world.shown(one) | ({"metadata": one.metadata} if includes_metadata and one.metadata else {}) for one in page
    ]
