"""The methods of the Web API: what each takes, and what it does to the workspace."""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from talaria.testing.slack_server.blocks import check_blocks
from talaria.testing.slack_server.world import BOT_ID, Fail, Message, World

_LONGEST_TEXT = 40_000
_EMOJI = re.compile(r"[a-z0-9_+'-]+(::skin-tone-[2-6])?")
_UNKNOWN_EMOJI = frozenset({"no_such_emoji"})
_METADATA = {"event_type", "event_payload"}

Parameters = dict[str, Any]
Answer = dict[str, Any]


class Method(Struct, frozen=True):
    """A method: what does it, the scope that it needs, what must be there and what may."""

    run: Callable[[World, Parameters], Answer]
    scope: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


def auth_test(world: World, _: Parameters) -> Answer:
    """Tell who the app is."""
    return {
        "url": "https://tests.example/",
        "team": "Tests",
        "team_id": "T0TESTS",
        "user": world.bot.name,
        "user_id": world.bot.id,
        "bot_id": BOT_ID,
    }


def post_message(world: World, given: Parameters) -> Answer:
    """Post a message of the app."""
    place = world.place(given["channel"])
    text, blocks = given.get("text") or "", check_blocks(given.get("blocks") or [])
    if not text.strip() and not blocks:
        raise Fail("no_text")
    if len(text) > _LONGEST_TEXT:
        raise Fail("msg_too_long")
    metadata = given.get("metadata") or {}
    if metadata and set(metadata) != _METADATA:
        raise Fail("invalid_metadata_format")
    thread = given.get("thread_ts") or ""
    if thread and place.find(thread) is None:
        raise Fail("thread_not_found")
    message = Message(world.stamp(), world.bot.id, text, thread, blocks, metadata=metadata, bot=True)
    place.messages.append(message)
    return {"channel": place.id, "ts": message.ts, "message": world.shown(message)}


def update(world: World, given: Parameters) -> Answer:
    """Change a message of the app."""
    message = world.message(given["channel"], given["ts"])
    if not message.bot:
        raise Fail("cant_update_message")
    text = given.get("text") or ""
    if not text.strip() and not given.get("blocks"):
        raise Fail("no_text")
    if len(text) > _LONGEST_TEXT:
        raise Fail("msg_too_long")
    message.blocks, message.text = check_blocks(given.get("blocks") or []), text
    message.edits += 1
    return {"channel": given["channel"], "ts": message.ts, "text": text}


def add_reaction(world: World, given: Parameters) -> Answer:
    """Put a mark of the app on a message."""
    message, name = world.message(given["channel"], given["timestamp"]), str(given["name"])
    if not _EMOJI.fullmatch(name) or name in _UNKNOWN_EMOJI:
        raise Fail("invalid_name")
    if world.bot.id in message.reactions.get(name, []):
        raise Fail("already_reacted")
    message.reactions.setdefault(name, []).append(world.bot.id)
    return {}


def remove_reaction(world: World, given: Parameters) -> Answer:
    """Take a mark of the app away."""
    message, name = world.message(given["channel"], given["timestamp"]), str(given["name"])
    if world.bot.id not in message.reactions.get(name, []):
        raise Fail("no_reaction")
    message.reactions[name].remove(world.bot.id)
    if not message.reactions[name]:
        del message.reactions[name]
    return {}


def get_reactions(world: World, given: Parameters) -> Answer:
    """Tell the marks of a message."""
    message = world.message(given["channel"], given["timestamp"])
    return {"type": "message", "channel": given["channel"], "message": world.shown(message)}


def user_info(world: World, given: Parameters) -> Answer:
    """Tell who somebody is."""
    user = world.users.get(given["user"])
    if user is None:
        raise Fail("user_not_found")
    profile = {"display_name": "", "real_name": user.name}
    return {"user": {"id": user.id, "name": user.name.lower(), "real_name": user.name, "profile": profile}}


def channel_info(world: World, given: Parameters) -> Answer:
    """Tell what a channel is."""
    place = world.place(given["channel"], joined=False)
    named = {} if place.kind == "im" else {"name": place.name}
    joined = {} if place.kind == "im" else {"is_member": world.bot.id in place.members, "is_archived": place.archived}
    return {"channel": {"id": place.id, "is_im": place.kind == "im"} | joined | named}


def history(world: World, given: Parameters) -> Answer:
    """Tell the latest messages of a channel, the newest first."""
    messages = [one for one in world.place(given["channel"]).messages if not one.thread_ts]
    return {"messages": _page(world, given, list(reversed(messages)))}


def replies(world: World, given: Parameters) -> Answer:
    """Tell the messages of a thread, the oldest first."""
    messages = [one for one in world.place(given["channel"]).messages if given["ts"] in (one.ts, one.thread_ts)]
    if not messages:
        raise Fail("thread_not_found")
    return {"messages": _page(world, given, messages)}


def _page(world: World, given: Parameters, messages: list[Message]) -> list[Answer]:
    told = given.get("include_all_metadata") in (True, "1", "true")
    page = [one for one in messages if one.ts > given.get("oldest", "")][: int(given.get("limit", 100))]
    return [world.shown(one) | ({"metadata": one.metadata} if told and one.metadata else {}) for one in page]


def open_channel(world: World, given: Parameters) -> Answer:
    """Tell the private chat with somebody."""
    if given["users"] not in world.users:
        raise Fail("user_not_found")
    return {"channel": {"id": world.place(given["users"]).id}}


def upload_url(world: World, given: Parameters) -> Answer:
    """Make room for a file."""
    if not str(given["length"]).isdecimal() or int(given["length"]) < 1:
        raise Fail("invalid_arguments")
    file = world.add_file(given["filename"], int(given["length"]))
    return {"file_id": file.id, "upload_url": f"{world.url}/upload/v1/{file.id}"}


def complete_upload(world: World, given: Parameters) -> Answer:
    """Share files that were uploaded, all in one message."""
    files = [world.files.get(str(one.get("id"))) for one in given["files"]]
    found = [one for one in files if one is not None and one.data is not None]
    if not found or len(found) != len(files):
        raise Fail("file_not_found")
    place = world.place(given.get("channel_id"))
    thread = given.get("thread_ts") or ""
    if thread and place.find(thread) is None:
        raise Fail("invalid_thread_ts")
    place.messages.append(Message(world.stamp(), world.bot.id, "", thread, files=found, bot=True))
    return {"files": [{"id": one.id, "title": one.name} for one in found]}


def file_info(world: World, given: Parameters) -> Answer:
    """Tell where a file is."""
    file = world.files.get(str(given["file"]))
    if file is None:
        raise Fail("file_not_found")
    return {"file": file.shown(world.url)}


def _beside(name: str) -> Callable[[World, Parameters], Answer]:
    def show(world: World, given: Parameters) -> Answer:
        place = world.place(given["channel_id"])
        if place.find(given["thread_ts"]) is None:
            raise Fail("invalid_thread_ts")
        world.shown_beside.append((name, given))
        return {}

    return show


_MESSAGE = ("blocks", "metadata", "text", "thread_ts", "unfurl_links", "unfurl_media")
_PAGE = ("include_all_metadata", "limit", "oldest")
_MARK = ("channel", "timestamp", "name")
_THREAD = ("channel_id", "thread_ts")

METHODS = {
    "auth.test": Method(auth_test, ""),
    "chat.postMessage": Method(post_message, "chat:write", ("channel",), _MESSAGE),
    "chat.update": Method(update, "chat:write", ("channel", "ts"), ("text", "blocks")),
    "reactions.add": Method(add_reaction, "reactions:write", _MARK),
    "reactions.remove": Method(remove_reaction, "reactions:write", _MARK),
    "reactions.get": Method(get_reactions, "reactions:read", ("channel", "timestamp"), ("full",)),
    "users.info": Method(user_info, "users:read", ("user",)),
    "conversations.info": Method(channel_info, "channels:read", ("channel",)),
    "conversations.history": Method(history, "channels:history", ("channel",), _PAGE),
    "conversations.replies": Method(replies, "channels:history", ("channel", "ts"), _PAGE),
    "conversations.open": Method(open_channel, "im:write", ("users",)),
    "files.getUploadURLExternal": Method(upload_url, "files:write", ("filename", "length")),
    "files.completeUploadExternal": Method(complete_upload, "files:write", ("files",), ("channel_id", "thread_ts")),
    "files.info": Method(file_info, "files:read", ("file",)),
    "assistant.threads.setStatus": Method(_beside("status"), "chat:write", (*_THREAD, "status")),
    "assistant.threads.setTitle": Method(_beside("title"), "assistant:write", (*_THREAD, "title")),
    "assistant.threads.setSuggestedPrompts": Method(_beside("prompts"), "assistant:write", (*_THREAD, "prompts")),
}
