"""All settings of Talaria itself: types, defaults, limits and descriptions.

``extra`` has what a type cannot express: ``live`` (a running process applies a change at once), ``check`` and
``expected`` (a check of the value and its description), ``mask`` (how a value that holds a secret is shown).
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.api import ApiSettings
from talaria.settings.sections.background import DelegationSettings, HeartbeatSettings, ScheduleSettings
from talaria.settings.sections.chats import (
    AccessSettings,
    ChatNetworkSettings,
    GatewaySettings,
    MediaSettings,
    PersonaSettings,
    PersonSettings,
    RouteSettings,
)
from talaria.settings.sections.checks import (
    is_identifier,
    is_store_url,
    is_time_zone,
    is_web_address,
    mask_header_values,
    mask_password,
)
from talaria.settings.sections.providers import (
    EmbeddedSettings,
    ImageSettings,
    LoginSettings,
    ModelFacts,
    ModelSettings,
    ProviderAccount,
    VoiceSettings,
)
from talaria.settings.sections.tools import (
    ApprovalRuleSettings,
    ApprovalSettings,
    BrowserSettings,
    CheckpointSettings,
    McpServerSettings,
    SandboxSettings,
    WebSettings,
)

TOOLSETS = (
    "terminal", "files", "web", "memory", "skills", "planning", "code", "vision", "send", "cron", "delegation", "media",
)  # fmt: skip
OPTIONAL_TOOLSETS = ("browser",)  # off until they are enabled
_SOME_TOOLSETS = {
    "check": lambda names: set(names) <= {*TOOLSETS, *OPTIONAL_TOOLSETS},
    "expected": f"a list of some of {', '.join((*TOOLSETS, *OPTIONAL_TOOLSETS))}",
}
_LIVE = {"live": True}


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Table of config.toml; every key has a default."""


class StoreSettings(Section, frozen=True):
    """Location of the store."""

    url: Annotated[
        str,
        Meta(
            description="PostgreSQL database to use; empty means the SQLite file in the profile's folder.",
            extra={
                "check": is_store_url,
                "expected": "empty or an address that starts with postgresql://",
                "mask": mask_password,
            },
        ),
    ] = ""
    schema: Annotated[
        str,
        Meta(
            description="PostgreSQL schema that holds the tables.",
            extra={
                "check": is_identifier,
                "expected": "a name of at most 63 lower-case letters, digits and underscores, not "
                "starting with a digit",
            },
        ),
    ] = "talaria"
    busy_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long to wait while another process writes to the store.")
    ] = 5.0
    readers: Annotated[int, Meta(ge=1, le=16, description="Number of read-only SQLite connections per process.")] = 2
    connections: Annotated[
        int, Meta(ge=1, le=64, description="Maximum number of PostgreSQL connections per process.")
    ] = 4


class CliSettings(Section, frozen=True):
    """Display options of the terminal."""

    color: Annotated[
        Literal["auto", "always", "never"],
        Meta(description="Whether output is coloured; auto means only on a terminal.", extra=_LIVE),
    ] = "auto"
    time_zone: Annotated[
        str,
        Meta(
            description="Time zone for displayed times; empty means the system's.",
            extra={
                "live": True,
                "check": is_time_zone,
                "expected": "empty or the name of a time zone, for example Europe/Berlin",
            },
        ),
    ] = ""

    theme: Annotated[
        Literal["auto", "dark", "light", "mono"],
        Meta(description="Colours of the chat; auto uses TERM and COLORFGBG, mono has none."),
    ] = "auto"
    plain: Annotated[
        bool, Meta(description="Whether the chat uses plain lines of text, for screen readers and simple terminals.")
    ] = False
    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        Meta(
            description="What happens to a message typed while a turn is running: it waits, joins the "
            "turn, or stops it."
        ),
    ] = "queue"
    plan: Annotated[
        bool, Meta(description="Whether new conversations in the terminal start in plan mode; see `/plan`.")
    ] = False
    notify: Annotated[
        Literal["off", "bell", "desktop"],
        Meta(
            description="How the chat notifies you while you are away, when a turn ends or a question is "
            "open: terminal bell, or desktop notification (OSC 9, where supported)."
        ),
    ] = "bell"
    notify_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="Seconds without a key press after which you count as away.")
    ] = 10.0


class SessionSettings(Section, frozen=True):
    """Retention of sessions."""

    prune_after_days: Annotated[
        int,
        Meta(
            ge=1,
            le=36_500,
            description="Days without a message after which `talaria sessions prune` deletes a session.",
            extra={"live": True},
        ),
    ] = 90


class DoctorSettings(Section, frozen=True):
    """Thresholds of `talaria doctor`."""

    min_free_megabytes: Annotated[
        int,
        Meta(ge=0, description="Minimum free disk space in megabytes; `talaria doctor` warns below it.", extra=_LIVE),
    ] = 500


class UpdateSettings(Section, frozen=True):
    """New versions of Talaria."""

    check: Annotated[
        bool,
        Meta(
            description="Whether the chat looks for a newer version in the package index, at most once a day.",
            extra=_LIVE,
        ),
    ] = False


class LogSettings(Section, frozen=True):
    """Logging."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level of messages that are logged.", extra=_LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(
            description="Log format: text lines for people, or one JSON object per line; both include session and turn."
        ),
    ] = "text"


class AgentSettings(Section, frozen=True):
    """Limits of a turn."""

    max_iterations: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of model calls per turn.", extra=_LIVE)
    ] = 60
    max_turn_seconds: Annotated[
        int, Meta(ge=0, description="Maximum seconds per turn; 0 means no limit.", extra=_LIVE)
    ] = 0
    max_turn_tokens: Annotated[
        int, Meta(ge=0, description="Maximum tokens per turn; 0 means no limit.", extra=_LIVE)
    ] = 0


class GoalSettings(Section, frozen=True):
    """Limits of a goal before the user is asked; 0 means no limit."""

    max_turns: Annotated[int, Meta(ge=1, le=10_000, description="Maximum number of turns of a goal.", extra=_LIVE)] = 20
    max_tokens: Annotated[int, Meta(ge=0, description="Maximum tokens of a goal; 0 means no limit.", extra=_LIVE)] = 0
    max_dollars: Annotated[
        float, Meta(ge=0, description="Maximum dollars of a goal; 0 means no limit.", extra=_LIVE)
    ] = 0.0
    max_minutes: Annotated[
        int, Meta(ge=0, description="Maximum minutes of a goal, with waits; 0 means no limit.", extra=_LIVE)
    ] = 0
    judge_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="How long to wait for the judge's verdict on a turn.", extra=_LIVE)
    ] = 60
    verify_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="How long a goal's `verify:` command may take.", extra=_LIVE)
    ] = 300


class BudgetSettings(Section, frozen=True):
    """Spending caps for models, in dollars; 0 means no limit."""

    total: Annotated[float, Meta(ge=0, description="Dollars per calendar month; 0 means no limit.", extra=_LIVE)] = 0.0
    person: Annotated[float, Meta(ge=0, description="Dollars per person and month; 0 means no limit.", extra=_LIVE)] = (
        0.0
    )
    session: Annotated[float, Meta(ge=0, description="Dollars per session; 0 means no limit.", extra=_LIVE)] = 0.0
    turn: Annotated[float, Meta(ge=0, description="Dollars per turn; 0 means no limit.", extra=_LIVE)] = 0.0


class ToolSettings(Section, frozen=True):
    """Tools of the agent."""

    toolsets: Annotated[
        tuple[str, ...], Meta(description="Toolsets that are on; `talaria tools` lists them.", extra=_SOME_TOOLSETS)
    ] = TOOLSETS
    disabled: Annotated[tuple[str, ...], Meta(description="Tools that are off.")] = ()
    disabled_skills: Annotated[tuple[str, ...], Meta(description="Skills that the agent doesn't see.")] = ()
    skill_folders: Annotated[
        tuple[str, ...],
        Meta(description="More folders with skills, after the profile's and the project's; the first of a name wins."),
    ] = ("~/.claude/skills", "~/.codex/skills", "~/.agents/skills")


class MemorySettings(Section, frozen=True):
    """Memory of the agent; all of it is part of every new conversation."""

    notes_limit: Annotated[
        int, Meta(ge=200, le=100_000, description="Maximum characters of the agent's notes, for each person or group.")
    ] = 2_200
    person_limit: Annotated[
        int, Meta(ge=200, le=100_000, description="Maximum characters of what it knows about a person.")
    ] = 1_375
    provider: Annotated[
        str, Meta(description="Where entries are stored: files, or the name of an installed provider.")
    ] = "files"
    options: Annotated[dict[str, str], Meta(description="Options of an installed provider.")] = {}
    space: Annotated[str, Meta(description="Name of a memory apart from the usual one; personas have theirs.")] = ""


class SurfaceSettings(Section, frozen=True):
    """Overrides for one surface, for example cli or python."""

    toolsets: Annotated[
        tuple[str, ...],
        Meta(description="Toolsets that are on there; empty means those in tools.toolsets.", extra=_SOME_TOOLSETS),
    ] = ()
    sandbox: Annotated[
        Literal["", "off", "bubblewrap", "podman", "docker", "ssh"],
        Meta(description="Sandbox of commands there, or off; empty means as in the section sandbox."),
    ] = ""


class TelemetrySettings(Section, frozen=True):
    """Export of traces of finished turns: names, sizes, times and costs, never messages."""

    endpoint: Annotated[
        str,
        Meta(
            description="OpenTelemetry collector that receives traces (OTLP over HTTP); empty means none.",
            extra={
                "check": is_web_address,
                "expected": "empty or an address that starts with https:// or http://",
                "mask": mask_password,
            },
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers to send to it, for example an API key.", extra={"mask": mask_header_values}),
    ] = {}


class Settings(Section, frozen=True):
    """All sections, with defaults for everything that is not set."""

    store: StoreSettings = StoreSettings()
    cli: CliSettings = CliSettings()
    sessions: SessionSettings = SessionSettings()
    doctor: DoctorSettings = DoctorSettings()
    update: UpdateSettings = UpdateSettings()
    log: LogSettings = LogSettings()
    model: ModelSettings = ModelSettings()
    providers: dict[str, ProviderAccount] = {}
    models: dict[str, ModelFacts] = {}
    logins: dict[str, LoginSettings] = {}
    embedded: EmbeddedSettings = EmbeddedSettings()
    agent: AgentSettings = AgentSettings()
    goals: GoalSettings = GoalSettings()
    delegation: DelegationSettings = DelegationSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    gateway: GatewaySettings = GatewaySettings()
    api: ApiSettings = ApiSettings()
    media: MediaSettings = MediaSettings()
    voice: VoiceSettings = VoiceSettings()
    images: ImageSettings = ImageSettings()
    budget: BudgetSettings = BudgetSettings()
    tools: ToolSettings = ToolSettings()
    web: WebSettings = WebSettings()
    memory: MemorySettings = MemorySettings()
    browser: BrowserSettings = BrowserSettings()
    surfaces: dict[str, SurfaceSettings] = {}
    mcp: dict[str, McpServerSettings] = {}
    approval: ApprovalSettings = ApprovalSettings()
    rules: dict[str, ApprovalRuleSettings] = {}
    sandbox: SandboxSettings = SandboxSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    access: AccessSettings = AccessSettings()
    platforms: dict[str, ChatNetworkSettings] = {}
    people: dict[str, PersonSettings] = {}
    personas: dict[str, PersonaSettings] = {}
    routes: dict[str, RouteSettings] = {}


class LiveSettings:
    """Current settings, replaced as a whole by `replace`.

    ``generation`` counts the replacements since the process started; equal generations mean identical settings.
    """

    def __init__(self, current: Settings) -> None:
        self.current = current
        self.generation = 0

    def replace(self, settings: Settings) -> None:
        """Replace the settings."""
        self.current = settings
        self.generation += 1
