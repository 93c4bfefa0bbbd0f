"""The HTTP methods of the fake Discord: validate, change the state, answer as Discord does."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from talaria.testing.discord_server.channels import (
    DIRECT,
    FORUM,
    PUBLIC_THREAD,
    Post,
    StoredAttachment,
    StoredChannel,
    find_mentions,
    message_to_wire,
)
from talaria.testing.discord_server.forms import (
    FILE_LIMIT,
    VOICE,
    Callback,
    Command,
    CreateMessage,
    CreateThread,
    DiscordRefusal,
    EditMessage,
    bad_form,
    check_commands,
    check_components,
    check_text,
    check_voice,
    forbidden,
    parse_form,
    unauthorized,
    unknown,
)
from talaria.testing.discord_server.world import Interaction, World, reaction_event


class Upload(Struct, frozen=True):
    """An uploaded file."""

    name: str
    data: bytes
    content_type: str


class Request(Struct, frozen=True):
    """A parsed request."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    uploads: Mapping[str, Upload]


Answer = tuple[int, Any]
Method = Callable[[World, Request], Awaitable[Answer]]


async def own_account(world: World, request: Request) -> Answer:
    """Return the bot's account."""
    return 200, {**world.me.wire(), "mfa_enabled": False, "locale": "en-US"}


async def own_application(world: World, request: Request) -> Answer:
    """Return the bot's application."""
    owner = next(iter(world.people.values()), world.me)
    return 200, {
        "id": world.me.id,
        "name": world.me.username,
        "icon": None,
        "description": "",
        "type": None,
        "verify_key": "0" * 64,
        "flags": 0,
        "flags_new": "0",
        "redirect_uris": [],
        "interactions_endpoint_url": None,
        "role_connections_verification_url": None,
        "owner": owner.wire(),
        "approximate_guild_count": 1,
        "approximate_user_install_count": 0,
        "approximate_user_authorization_count": 0,
        "explicit_content_filter": 0,
        "team": None,
        "eligible_oauth2_scopes": [],
        "bot_public": False,
        "bot_require_code_grant": False,
    }


async def gateway(world: World, request: Request) -> Answer:
    """Return the address of the gateway."""
    limit = {"total": 1000, "remaining": world.gateway.starts_left, "reset_after": 14_400_000, "max_concurrency": 1}
    return 200, {"url": world.gateway.url, "shards": 1, "session_start_limit": limit}


async def get_channel(world: World, request: Request) -> Answer:
    """Return a channel."""
    channel = world.channel(request.path["channel_id"])
    if "look" in channel.forbids:
        raise DiscordRefusal(403, 50001, "Missing Access")
    return 200, channel.wire()


async def get_roles(world: World, request: Request) -> Answer:
    """Show the roles of the server."""
    return 200, [world.own_role()]


async def get_message(world: World, request: Request) -> Answer:
    """Show a message."""
    return 200, message_to_wire(world.post(*_find_target(world, request)), world.me)


async def get_messages(world: World, request: Request) -> Answer:
    """Show messages, the newest first."""
    channel = world.channel(request.path["channel_id"])
    limit, after = int(request.query.get("limit", "50")), int(request.query.get("after", "0"))
    if not 1 <= limit <= 100:
        raise bad_form("limit", "int value should be less than or equal to 100.")
    found = [post for post in channel.posts if int(post.id) > after]
    chosen = found[:limit] if after else found[-limit:]
    return 200, [message_to_wire(post, world.me) for post in reversed(chosen)]


async def create_message(world: World, request: Request) -> Answer:
    """Post a message; one with a nonce that was used lately is the one of then."""
    channel = world.channel(request.path["channel_id"])
    if "messages" in channel.forbids:
        raise forbidden()
    if channel.type == FORUM:
        raise DiscordRefusal(400, 50008, "Cannot send messages in a non-text channel")
    form = parse_form(request.body, CreateMessage)
    nonce = str(form.nonce or "")
    if len(nonce) > 25:
        raise bad_form("nonce", "Must be 25 or fewer in length.")
    if form.enforce_nonce and nonce in world.nonces:
        return 200, message_to_wire(world.nonces[nonce], world.me)
    post = _create_post(world, channel, form, request)
    if nonce:
        post.nonce = nonce
        world.nonces[nonce] = post
    await world.dispatch("MESSAGE_CREATE", post)
    return 200, message_to_wire(post, world.me)


async def edit_message(world: World, request: Request) -> Answer:
    """Change a message of the bot."""
    post = world.post(*_find_target(world, request))
    form = parse_form(request.body, EditMessage)
    if post.author is not world.me:
        raise DiscordRefusal(403, 50005, "Cannot edit a message authored by another user")
    if form.content is not None:
        text = check_text(form.content)
        if not text and not post.files:
            raise DiscordRefusal(400, 50006, "Cannot send an empty message")
        post.text = text
    if form.components is not None:
        post.components = check_components(form.components)
    post.edited_at = datetime.now(UTC)
    await world.dispatch("MESSAGE_UPDATE", post)
    return 200, message_to_wire(post, world.me)


async def delete_message(world: World, request: Request) -> Answer:
    """Remove a message."""
    channel, post_id = _find_target(world, request)
    channel.posts.remove(world.post(channel, post_id))
    world.changed()
    return 204, None


async def show_typing(world: World, request: Request) -> Answer:
    """Show that the bot writes."""
    world.typing.append(world.channel(request.path["channel_id"]).id)
    world.changed()
    return 204, None


async def add_reaction(world: World, request: Request) -> Answer:
    """Let the bot mark a message."""
    post, emoji = world.post(*_find_target(world, request)), request.path["emoji_name"]
    if emoji.isascii():
        raise unknown("Emoji")
    people = post.reactions.setdefault(emoji, [])
    if world.me.id not in people:
        people.append(world.me.id)
        await world.gateway.dispatch("MESSAGE_REACTION_ADD", reaction_event(world, post, emoji, world.me.id))
    world.changed()
    return 204, None


async def remove_reaction(world: World, request: Request) -> Answer:
    """Let the bot take its mark away."""
    post, emoji = world.post(*_find_target(world, request)), request.path["emoji_name"]
    if world.me.id in post.reactions.get(emoji, []):
        post.reactions[emoji].remove(world.me.id)
    world.changed()
    return 204, None


async def open_thread(world: World, request: Request) -> Answer:
    """Open a thread in a channel, or a post in a forum."""
    channel = world.channel(request.path["channel_id"])
    form = parse_form(request.body, CreateThread)
    if channel.type == DIRECT or channel.is_thread:
        raise DiscordRefusal(400, 50024, "Cannot execute action on this channel type")
    if "threads" in channel.forbids or "all threads" in channel.forbids:
        raise forbidden()
    _check_name(form)
    if channel.type != FORUM:
        return 201, (await _open_thread(world, channel, form.name, world.ids.next(), form.type)).wire()
    if form.message is None:
        raise bad_form("message", "This field is required")
    thread = await _open_thread(world, channel, form.name, world.ids.next(), PUBLIC_THREAD)
    post = _create_post(world, thread, form.message, request)
    await world.dispatch("MESSAGE_CREATE", post)
    return 201, thread.wire()


async def open_thread_on(world: World, request: Request) -> Answer:
    """Open a thread on a message; the thread has the id of that."""
    channel, post_id = _find_target(world, request)
    world.post(channel, post_id)
    form = parse_form(request.body, CreateThread)
    if channel.type == DIRECT or channel.is_thread:
        raise DiscordRefusal(400, 50024, "Cannot execute action on this channel type")
    if "all threads" in channel.forbids:
        raise forbidden()
    _check_name(form)
    return 201, (await _open_thread(world, channel, form.name, post_id, PUBLIC_THREAD)).wire()


async def get_commands(world: World, request: Request) -> Answer:
    """Show the commands that were registered."""
    _find_own_post(world, request)
    return 200, world.commands


async def put_commands(world: World, request: Request) -> Answer:
    """Register commands in place of those of before."""
    _find_own_post(world, request)
    commands = parse_form(request.body, list[Command])
    check_commands(commands)
    world.commands = [_command_to_wire(world, one) for one in commands]
    world.changed()
    return 200, world.commands


async def respond(world: World, request: Request) -> Answer:
    """Answer an interaction, once."""
    interaction = next((one for one in world.interactions if one.id == request.path["interaction_id"]), None)
    if interaction is None or interaction.token != request.path["interaction_token"]:
        raise unknown("Interaction")
    if interaction.answer:
        raise DiscordRefusal(400, 40060, "Interaction has already been acknowledged.")
    form = parse_form(request.body, Callback)
    if form.type not in (4, 5, 6, 7):
        raise bad_form("type", "Value must be one of (4, 5, 6, 7).")
    interaction.answer, interaction.standing = form.type, form.type in (4, 5)
    interaction.ephemeral = bool((form.data or {}).get("flags", 0) & 64)
    world.changed()
    if request.query.get("with_response") not in ("1", "true"):
        return 204, None
    kind = 2 if form.type in (4, 5) else 3
    return 200, {"interaction": {"id": interaction.id, "type": kind, "response_message_loading": form.type == 5}}


async def delete_response(world: World, request: Request) -> Answer:
    """Remove the answer to an interaction."""
    interaction: Interaction | None = next(
        (one for one in world.interactions if one.token == request.path["webhook_token"]), None
    )
    if interaction is None or request.path["webhook_id"] != world.me.id:
        raise unauthorized()
    if not interaction.standing:
        raise unknown("Message")
    interaction.standing = False
    world.changed()
    return 204, None


def _find_target(world: World, request: Request) -> tuple[StoredChannel, str]:
    return world.channel(request.path["channel_id"]), request.path["message_id"]


def _create_post(world: World, channel: StoredChannel, form: CreateMessage, request: Request) -> Post:
    text, rows, files = (
        check_text(form.content),
        check_components(form.components),
        _store_files(world, channel, form, request),
    )
    check_voice(form)
    if form.flags & VOICE and "voice" in channel.forbids:
        raise DiscordRefusal(400, 50173, "Cannot send voice messages in this channel")
    if not text and not files:
        raise DiscordRefusal(400, 50006, "Cannot send an empty message")
    answered = None
    if form.message_reference is not None:
        message_id = str(form.message_reference.message_id)
        answered = next((post for post in channel.posts if post.id == message_id), None)
        if answered is None and form.message_reference.fail_if_not_exists:
            raise bad_form("message_reference", "Unknown message")
    mentioned = find_mentions(text, world.people.values()) if form.allowed_mentions is None else []
    post = Post(
        id=world.ids.next(),
        channel=channel,
        author=world.me,
        text=text,
        reply_to=answered,
        files=files,
        components=rows,
        mentions=mentioned,
        flags=form.flags,
    )
    channel.posts.append(post)
    return post


def _store_files(world: World, channel: StoredChannel, form: CreateMessage, request: Request) -> list[StoredAttachment]:
    forms_by_id = {str(one.id): one for one in form.attachments or []}
    if set(forms_by_id) != set(request.uploads) or len(forms_by_id) > 10:
        raise bad_form("attachments", "Attachment data not found")
    files = []
    for number, upload in request.uploads.items():
        if len(upload.data) > FILE_LIMIT:
            raise DiscordRefusal(413, 40005, "Request entity too large")
        stored = world.stored(channel, forms_by_id[number].filename or upload.name, upload.data, upload.content_type)
        stored = StoredAttachment(
            stored.id,
            stored.name,
            stored.data,
            stored.url,
            stored.content_type,
            forms_by_id[number].duration_secs,
            forms_by_id[number].waveform,
        )
        files.append(stored)
    return files


def _check_name(form: CreateThread) -> None:
    if not 1 <= len(form.name.strip()) <= 100:
        raise bad_form("name", "Must be between 1 and 100 in length.")
    if form.auto_archive_duration not in (None, 60, 1440, 4320, 10080):
        raise bad_form("auto_archive_duration", "Value must be one of (60, 1440, 4320, 10080).")


async def _open_thread(world: World, channel: StoredChannel, name: str, number: str, kind: int) -> StoredChannel:
    thread = StoredChannel(id=number, type=kind, name=name, guild_id=channel.guild_id, parent=channel, owner=world.me)
    world.channels[number] = thread
    await world.gateway.dispatch("THREAD_CREATE", {**thread.wire(), "newly_created": True})
    return thread


def _find_own_post(world: World, request: Request) -> None:
    if request.path["application_id"] != world.me.id:
        raise unknown("Application")


def _command_to_wire(world: World, one: Command) -> dict[str, Any]:
    options = [
        {"type": o.type, "name": o.name, "description": o.description, "required": o.required} for o in one.options
    ]
    return {
        "id": world.ids.next(),
        "application_id": world.me.id,
        "version": world.ids.next(),
        "default_member_permissions": None,
        "type": one.type,
        "name": one.name,
        "description": one.description,
        "options": options,
    }


_MESSAGE = "/channels/{channel_id}/messages/{message_id}"
_REACTION = _MESSAGE + "/reactions/{emoji_name}/@me"
_COMMANDS = "/applications/{application_id}/commands"
UNAUTHENTICATED = frozenset({respond, delete_response})  # the token of an interaction is in the address
METHODS: dict[tuple[str, str], Method] = {
    ("GET", "/users/@me"): own_account,
    ("GET", "/oauth2/applications/@me"): own_application,
    ("GET", "/gateway/bot"): gateway,
    ("GET", "/channels/{channel_id}"): get_channel,
    ("GET", "/guilds/{guild_id}/roles"): get_roles,
    ("GET", "/channels/{channel_id}/messages"): get_messages,
    ("POST", "/channels/{channel_id}/messages"): create_message,
    ("GET", _MESSAGE): get_message,
    ("PATCH", _MESSAGE): edit_message,
    ("DELETE", _MESSAGE): delete_message,
    ("POST", "/channels/{channel_id}/typing"): show_typing,
    ("PUT", _REACTION): add_reaction,
    ("DELETE", _REACTION): remove_reaction,
    ("POST", "/channels/{channel_id}/threads"): open_thread,
    ("POST", _MESSAGE + "/threads"): open_thread_on,
    ("GET", _COMMANDS): get_commands,
    ("PUT", _COMMANDS): put_commands,
    ("POST", "/interactions/{interaction_id}/{interaction_token}/callback"): respond,
    ("DELETE", "/webhooks/{webhook_id}/{webhook_token}/messages/@original"): delete_response,
}
