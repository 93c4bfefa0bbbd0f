"""Settings of chats: gateway, access, people, rooms, personas, routes and files, and when sessions are reset.

A person is written as ``platform:id``, for example ``telegram:12345``, or by a name from ``people``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.core.addresses import Address
from talaria.settings.sections.checks import are_access_rules, are_ids, are_names, are_tool_names, is_pattern

_NAMES = {"live": True, "check": are_names, "expected": "a list, each item PLATFORM:ID or a name from people"}
_CHATS = {"live": True, "check": are_ids, "expected": "a list, each item PLATFORM:ID"}
_TOOLS = {"live": True, "check": are_tool_names, "expected": "a list of names of tools or toolsets"}
# None of them writes files or runs programs; they can read only the session's folder.
GUEST_TOOLS = ("web", "memory", "planning", "vision", "read_file", "list_files", "search_files")
_LIVE: dict[str, Any] = {"live": True}


class BuiltInPlatform(Struct, frozen=True):
    """Chat network with an adapter in this package, in the folder with its name.

    ``secrets`` are groups, of which one secret each must be set; a network without any is served if the settings name
    it. ``more_secrets`` are optional. ``extra`` is the package extra with its library. ``command`` is the form in which
    slash commands are typed. ``server`` says what the field of that name means in a route; empty if it has no meaning.
    """

    secrets: tuple[tuple[str, ...], ...] = ()
    more_secrets: tuple[str, ...] = ()
    extra: str = ""
    command: str = "/{name}"
    server: str = ""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Return the names of all its secrets."""
        return (*(name for group in self.secrets for name in group), *self.more_secrets)


BUILT_IN_PLATFORMS = {
    "telegram": BuiltInPlatform((("TELEGRAM_BOT_TOKEN",),), extra="telegram"),
    "discord": BuiltInPlatform((("DISCORD_BOT_TOKEN",),), extra="discord", server="id of the server"),
    "slack": BuiltInPlatform(
        (("SLACK_BOT_TOKEN",), ("SLACK_APP_TOKEN",)),
        extra="slack",
        command="/talaria {name}",
        server="id of the workspace",
    ),
    "matrix": BuiltInPlatform(
        (("MATRIX_HOMESERVER",), ("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD")),
        extra="matrix",
        server="homeserver on which the room was created",
    ),
    "email": BuiltInPlatform((("EMAIL_PASSWORD", "EMAIL_REFRESH_TOKEN"),), ("EMAIL_CLIENT_SECRET",), extra="email"),
    "ntfy": BuiltInPlatform((("NTFY_TOPIC",),), ("NTFY_TOKEN",)),
    "irc": BuiltInPlatform(
        (("IRC_SERVER",),),
        ("IRC_PASSWORD", "IRC_SERVER_PASSWORD"),
        command="!{name}",
        server="name of the IRC network, else the host of its server",
    ),
    "xmpp": BuiltInPlatform(
        (("XMPP_JID",), ("XMPP_PASSWORD",)), extra="xmpp", command="!{name}", server="domain of the room"
    ),
    "mattermost": BuiltInPlatform(
        (("MATTERMOST_URL",), ("MATTERMOST_TOKEN",)),
        ("MATTERMOST_COMMAND_TOKEN",),
        extra="mattermost",
        command="!{name}",
        server="id of the team",
    ),
    "signal": BuiltInPlatform((("SIGNAL_DAEMON",), ("SIGNAL_ACCOUNT",))),
    "line": BuiltInPlatform((("LINE_CHANNEL_TOKEN",), ("LINE_CHANNEL_SECRET",))),
    "teams": BuiltInPlatform((("TEAMS_APP_ID",), ("TEAMS_APP_SECRET",)), extra="teams", server="id of the team"),
    "whatsapp": BuiltInPlatform((("WHATSAPP_TOKEN",), ("WHATSAPP_APP_SECRET",), ("WHATSAPP_VERIFY_TOKEN",))),
    "sms": BuiltInPlatform((("TWILIO_ACCOUNT_SID",), ("TWILIO_AUTH_TOKEN",), ("TWILIO_PHONE_NUMBER",))),
    "googlechat": BuiltInPlatform((("GOOGLE_CHAT_CREDENTIALS",),), extra="googlechat"),
    "feishu": BuiltInPlatform(
        (("FEISHU_APP_ID",), ("FEISHU_APP_SECRET",), ("FEISHU_ENCRYPT_KEY",), ("FEISHU_VERIFICATION_TOKEN",)),
        extra="feishu",
        server="key of the tenant",
    ),
    "webhook": BuiltInPlatform((), ("WEBHOOK_SECRET",)),
}


class ChatAccount(Struct, frozen=True):
    """Account of a chat network: ``name`` is its section in ``platforms``, usually that of the network."""

    name: str
    network: str

    def secret_name(self, secret: str) -> str:
        """Return the name of a secret: an account with a name of its own puts that before it."""
        return secret if self.name == self.network else f"{re.sub('[^A-Z0-9]', '_', self.name.upper())}_{secret}"

    def has_secrets(self, find: Callable[[str], str | None]) -> bool:
        """Return whether all required secrets are set."""
        groups = BUILT_IN_PLATFORMS[self.network].secrets
        return all(any(find(self.secret_name(name)) for name in group) for group in groups)


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access to the agent in chats: only for people listed here or paired by the owner."""

    owners: Annotated[
        tuple[str, ...],
        Meta(description="Owners of the agent; they share the memory of the terminal.", extra=_NAMES),
    ] = ()
    allowed: Annotated[tuple[str, ...], Meta(description="People who may talk to the agent.", extra=_NAMES)] = ()
    chats: Annotated[
        tuple[str, ...], Meta(description="Groups and channels in which everyone may talk to the agent.", extra=_CHATS)
    ] = ()
    blocked: Annotated[
        tuple[str, ...], Meta(description="People who never get an answer, whatever else is set.", extra=_NAMES)
    ] = ()
    pairing: Annotated[
        bool,
        Meta(
            description="Whether strangers in a private chat get a pairing code, with which you can approve them.",
            extra=_LIVE,
        ),
    ] = True
    everyone: Annotated[
        bool,
        Meta(description="Whether anyone may talk to the agent, strangers included, at your expense.", extra=_LIVE),
    ] = False
    guest_tools: Annotated[
        tuple[str, ...],
        Meta(
            description="Tools available to guests: names of tools or toolsets, or `mcp`.",
            extra=_TOOLS,
        ),
    ] = GUEST_TOOLS
    slash_access: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="Who may use a command, by its name: `owner`, `allowed` (everyone who may talk "
            "to the agent), or particular people.",
            extra={
                "live": True,
                "check": are_access_rules,
                "expected": "a table of lists, each item owner, allowed, PLATFORM:ID or a name from people",
            },
        ),
    ] = {}


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Long-running process that serves chat networks."""

    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        Meta(
            description="What happens to a message that arrives during a turn: it waits, joins the turn, or stops it.",
            extra=_LIVE,
        ),
    ] = "queue"
    folder: Annotated[
        str, Meta(description="Folder in which the agent works for chats; empty means one inside the profile.")
    ] = ""
    lease_seconds: Annotated[
        float,
        Meta(ge=0.5, le=600, description="How long a silent worker keeps its sessions before another one takes over."),
    ] = 15.0
    drain_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="Seconds that running turns get to finish when the gateway stops.")
    ] = 30.0
    open_sessions: Annotated[int, Meta(ge=1, le=100_000, description="Maximum number of open sessions.")] = 128
    idle_seconds: Annotated[float, Meta(ge=1, description="How long an idle conversation stays open.")] = 3600.0
    reply_characters: Annotated[
        int,
        Meta(
            ge=1_000,
            le=1_000_000,
            description="Maximum characters of a reply shown in a chat; a longer one is cut and attached as a file.",
            extra=_LIVE,
        ),
    ] = 200_000
    diff_lines: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Changed lines shown below an edit of a file while a turn runs; 0 shows none.",
            extra=_LIVE,
        ),
    ] = 6
    port: Annotated[
        int,
        Meta(ge=0, le=65_535, description="Port on loopback for health checks and metrics; 0 means any free port."),
    ] = 0


class RoomSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Group in which the agent reads along: one conversation for all, with the tools of guests."""

    messages: Annotated[
        int,
        Meta(
            ge=0,
            le=500,
            description="Latest messages to others that the agent reads when it is asked; 0 means none.",
            extra=_LIVE,
        ),
    ] = 30
    max_bytes: Annotated[
        int,
        Meta(ge=0, le=100_000, description="Maximum bytes of those messages; older ones are left out.", extra=_LIVE),
    ] = 8_000
    answer: Annotated[
        Literal["mention", "pattern", "always"],
        Meta(
            description="Messages to answer: mentions and replies, also those that match the pattern, or all.",
            extra=_LIVE,
        ),
    ] = "mention"
    pattern: Annotated[
        str,
        Meta(
            description="Regular expression that is searched for in each message if `answer` is `pattern`.",
            extra={"live": True, "check": is_pattern, "expected": "a regular expression"},
        ),
    ] = ""


class ChatNetworkSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chat network: who may use it, and how its chats map to sessions."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether the gateway serves this network; built-in networks also need their "
            "tokens (`talaria setup`)."
        ),
    ] = True
    network: Annotated[
        str,
        Meta(description="Network of this account, if the section isn't named after it; see `talaria routes --help`."),
    ] = ""
    options: Annotated[
        dict[str, str], Meta(description="Further options of the adapter; see the network's documentation.")
    ] = {}
    allowed: Annotated[
        tuple[str, ...],
        Meta(description="People on this network who may talk to the agent, by their ids there.", extra=_LIVE),
    ] = ()
    chats: Annotated[
        tuple[str, ...],
        Meta(description="Groups and channels in which everyone may talk to the agent, by their ids.", extra=_LIVE),
    ] = ()
    everyone: Annotated[
        bool,
        Meta(
            description="Whether anyone on this network may talk to the agent, strangers included, at your expense.",
            extra=_LIVE,
        ),
    ] = False
    prompts: Annotated[
        dict[str, str],
        Meta(
            description="Extra instructions for a chat or thread, by its id; used from its next conversation.",
            extra=_LIVE,
        ),
    ] = {}
    progress: Annotated[
        Literal["off", "new", "all", "verbose"],
        Meta(
            description="Tool calls shown: none, the first of each tool, all, or all with their output.",
            extra=_LIVE,
        ),
    ] = "all"
    reasoning: Annotated[bool, Meta(description="Whether the model's reasoning is shown.", extra=_LIVE)] = False
    streaming: Annotated[
        bool, Meta(description="Whether replies are streamed, where messages can be edited.", extra=_LIVE)
    ] = True
    footer: Annotated[
        bool,
        Meta(description="Whether a line below each reply shows model, context, folder and cost.", extra=_LIVE),
    ] = False
    reactions: Annotated[
        bool,
        Meta(description="Whether a message gets a reaction while it is being processed, where possible.", extra=_LIVE),
    ] = False
    group_sessions_per_user: Annotated[
        bool, Meta(description="Whether each person in a group has their own conversation.", extra=_LIVE)
    ] = True
    thread_sessions_per_user: Annotated[
        bool, Meta(description="Whether each person in a thread has their own conversation.", extra=_LIVE)
    ] = False
    reset: Annotated[
        Literal["never", "idle", "daily", "both"],
        Meta(description="When a new conversation starts: after a pause, at an hour of the day, or both.", extra=_LIVE),
    ] = "never"
    reset_idle_minutes: Annotated[
        int, Meta(ge=1, le=525_600, description="Minutes of silence that count as a pause.", extra=_LIVE)
    ] = 1440
    reset_hour: Annotated[
        int, Meta(ge=0, le=23, description="Hour of the day, in the time zone of cli.time_zone.", extra=_LIVE)
    ] = 4
    rooms: dict[str, RoomSettings] = {}


class PersonSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Person with several ids, who has the same memory and sessions under each of them."""

    ids: Annotated[tuple[str, ...], Meta(description="All ids of this person.", extra=_CHATS)] = ()


class PersonaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Persona: an agent with its own instructions, model, tools, memory and budget; a route says where it answers."""

    instructions: Annotated[
        str,
        Meta(
            description="Who it is and how it answers, in place of `SOUL.md`, which counts if this is empty.",
            extra=_LIVE,
        ),
    ] = ""
    model: Annotated[
        str, Meta(description="Its model, as PROVIDER:MODEL or an alias; empty means the configured one.", extra=_LIVE)
    ] = ""
    toolsets: Annotated[
        tuple[str, ...],
        Meta(
            description="Toolsets that it has; empty means those in tools.toolsets.",
            extra={"live": True, "check": are_tool_names, "expected": "a list of toolsets"},
        ),
    ] = ()
    mcp: Annotated[bool, Meta(description="Whether it uses the MCP servers.", extra=_LIVE)] = True
    memory: Annotated[
        Literal["own", "shared"],
        Meta(description="Whether it has its own memory, or shares that of the profile.", extra=_LIVE),
    ] = "own"
    budget: Annotated[
        float, Meta(ge=0, description="Maximum dollars per calendar month; 0 means no limit.", extra=_LIVE)
    ] = 0.0


class RouteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Route: which persona answers where; the most specific route counts."""

    persona: Annotated[str, Meta(description="Name of the persona; empty means the agent itself.", extra=_LIVE)] = ""
    network: Annotated[
        str, Meta(description="Network or account, for example telegram; empty means all.", extra=_LIVE)
    ] = ""
    server: Annotated[
        str, Meta(description="Server, workspace, team or the like, by its id; empty means all.", extra=_LIVE)
    ] = ""
    chat: Annotated[str, Meta(description="Chat or channel, by its id; empty means all.", extra=_LIVE)] = ""
    thread: Annotated[str, Meta(description="Thread or topic, by its id; empty means all.", extra=_LIVE)] = ""
    person: Annotated[
        str,
        Meta(
            description="Person, as PLATFORM:ID or a name from people, in conversations of their own; empty means all.",
            extra=_LIVE,
        ),
    ] = ""


ALL_ROOMS = "*"


def find_room(rooms: Mapping[str, RoomSettings], address: Address) -> RoomSettings | None:
    """Return the settings of a room: by its thread, by its chat, or those for all groups; ``None`` elsewhere."""
    if address.chat_type == "private":
        return None
    return rooms.get(address.thread_id) or rooms.get(address.chat_id) or rooms.get(ALL_ROOMS)


class MediaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in chat messages, downloaded before the turn of their message starts."""

    fetch_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long fetching one file may take.", extra=_LIVE)
    ] = 60.0
    file_megabytes: Annotated[
        float, Meta(gt=0, le=2000, description="Maximum size of a fetched file.", extra=_LIVE)
    ] = 50.0
    describe_stickers: Annotated[
        bool,
        Meta(description="Whether a vision model describes stickers, once for each sticker.", extra=_LIVE),
    ] = True
