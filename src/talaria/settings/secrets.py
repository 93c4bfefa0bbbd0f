"""Keys and tokens: from the environment, else from the ``.env`` of the profile; never shown whole."""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import ProfileUnusable, SettingsInvalid
from talaria.settings.faults import Fault, Place
from talaria.settings.files import OWNER_ONLY_FILE, only_writer, read_file, write_file
from talaria.settings.keys import VARIABLE_PREFIX
from talaria.settings.profiles import Profile
from talaria.settings.source import not_utf8, unreadable

_SHOWN_TAIL = 4
_LONG_ENOUGH_TO_SHOW_A_TAIL = 16
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=[ \t]*(.*)"
_DOUBLE_QUOTED = r'"((?:\\.|[^"\\])*)"\s*(?:#.*)?'
_SINGLE_QUOTED = r"'([^']*)'\s*(?:#.*)?"
_COMMENT = r"(?:^|(?<!\s)\s+)#.*"
_ESCAPE = r"\\(.)"
_NEEDS_NO_QUOTES = r"[A-Za-z0-9_./:@%+=,~^-]+"


class KnownSecret(Struct, frozen=True):
    """A secret Talaria can use; a running process uses the value that it started with."""

    name: str
    purpose: str
    hint: str


def _model_key(name: str, vendor: str) -> KnownSecret:
    return KnownSecret(name, f"Use models of {vendor}.", f"Made in the API keys section of your {vendor} account.")


KNOWN_SECRETS = (
    _model_key("OPENAI_API_KEY", "OpenAI"),
    _model_key("ANTHROPIC_API_KEY", "Anthropic"),
    _model_key("OPENROUTER_API_KEY", "OpenRouter"),
    _model_key("GROQ_API_KEY", "Groq"),
    _model_key("MISTRAL_API_KEY", "Mistral"),
    _model_key("DEEPSEEK_API_KEY", "DeepSeek"),
    _model_key("XAI_API_KEY", "xAI"),
    _model_key("GEMINI_API_KEY", "Google Gemini"),
    KnownSecret("TELEGRAM_BOT_TOKEN", "Speak on Telegram.", "BotFather gives it when you create a bot."),
    KnownSecret("DISCORD_BOT_TOKEN", "Speak on Discord.", "On the Bot page of your Discord application."),
    KnownSecret("SLACK_BOT_TOKEN", "Speak on Slack.", "Begins with xoxb-; shown after installing the app."),
    KnownSecret("SLACK_APP_TOKEN", "Hear on Slack.", "Begins with xapp-; an app-level token."),
    KnownSecret("MATRIX_HOMESERVER", "Find Matrix.", "The address of the server of the bot's account."),
    KnownSecret("MATRIX_ACCESS_TOKEN", "Speak on Matrix.", "From the client that is logged in as the bot."),
    KnownSecret("MATRIX_PASSWORD", "Log in on Matrix.", "In place of a token; used once, with options.user."),
    KnownSecret("TALARIA_API_KEY", "Ask this agent over HTTP.", "At least 16 characters; instead of `api-keys`."),
    KnownSecret("WEBHOOK_SECRET", "Know who posts webhooks.", "Any long word that both sides know."),
)


class Secrets:
    """The secrets a profile can use. A variable of the environment wins over the file."""

    def __init__(
        self, stored: Mapping[str, "StoredSecret"], environment: Mapping[str, str], faults: list[Fault]
    ) -> None:
        self._stored = stored
        self._environment = environment
        self.faults = tuple(faults)

    def get(self, name: str) -> str | None:
        """The value of a secret, if there is one that is not empty."""
        stored = self._stored.get(name)
        return self._environment.get(name) or (stored.value if stored else "") or None

    def place(self, name: str) -> Place | None:
        """Where the value of a secret comes from."""
        if self._environment.get(name):
            return Place(f"environment variable {name}")
        return self._stored[name].place if self.get(name) else None

    def names(self) -> tuple[str, ...]:
        """Every secret there is: all of the file, and those of the environment that are known."""
        known = [secret.name for secret in KNOWN_SECRETS]
        return tuple(name for name in dict.fromkeys([*known, *self._stored]) if self.get(name))


class StoredSecret(Struct, frozen=True):
    """One assignment of a ``.env``."""

    value: str
    place: Place


def read_secrets(profile: Profile, environment: Mapping[str, str]) -> Secrets:
    """Read the secrets of a profile; what is wrong with its ``.env`` is among their faults."""
    path = profile.secrets_file
    try:
        text = (read_file(path) or b"").decode("utf-8-sig")
        faults = _mode_faults(path)
    except ProfileUnusable as error:
        return Secrets({}, environment, [unreadable(error)])
    except UnicodeDecodeError as error:
        return Secrets({}, environment, [not_utf8(path, error)])
    stored, wrong = parse_secrets(path, text)
    return Secrets(stored, environment, faults + wrong)


def parse_secrets(path: Path, text: str) -> tuple[dict[str, StoredSecret], list[Fault]]:
    """The assignments in the text of a ``.env``, and what is wrong with the other lines."""
    stored: dict[str, StoredSecret] = {}
    faults: list[Fault] = []
    for number, line in enumerate(_lines(text), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = Place(str(path), number)
        name, value = _assignment(line)
        problem = _problem(name, value, stored)
        if problem:
            faults.append(Fault(problem=problem, file=place.file, line=number, key=name))
        if value is not None:
            stored[name] = StoredSecret(value, place)
    return stored, faults


def store_secret(profile: Profile, name: str, value: str) -> None:
    """Write a secret to the ``.env``, in place of its old value; other lines stay as they are."""
    if not re.fullmatch(_NAME, name):
        raise Refused(f"`{name}` cannot be the name of a secret: use letters, digits and underscores.")
    if name.startswith(VARIABLE_PREFIX):
        raise Refused(f"`{name}` overrides a setting and is no secret: use `talaria config set` with its key.")
    if not value:
        raise Refused(f"The value of `{name}` is empty; `talaria config unset {name}` removes a secret.")
    _rewrite(profile, name, f"{name}={_quoted(value)}")


def remove_secret(profile: Profile, name: str) -> None:
    """Take a secret out of the ``.env``; other lines stay as they are."""
    _rewrite(profile, name, None)


def mask(value: str) -> str:
    """What may be shown of a secret: nothing, or the last four characters of a long one."""
    return "****" + (value[-_SHOWN_TAIL:] if len(value) >= _LONG_ENOUGH_TO_SHOW_A_TAIL else "")


def _rewrite(profile: Profile, name: str, assignment: str | None) -> None:
    path = profile.secrets_file
    with only_writer(profile.folder):
        try:
            lines = _lines((read_file(path) or b"").decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise SettingsInvalid([not_utf8(path, error)]) from error
        others = [line for line in lines if _assignment(line)[0] != name]
        if assignment is not None:
            others.insert(_position(lines, name), assignment)
        elif others == lines:
            raise NotFound(f"`{name}` is not in {path}.")
        write_file(path, "".join(line + "\n" for line in others))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def _position(lines: list[str], name: str) -> int:
    """Where the assignment of ``name`` stands, or the end."""
    return next((number for number, line in enumerate(lines) if _assignment(line)[0] == name), len(lines))


def _assignment(line: str) -> tuple[str, str | None]:
    """Name and value of a line; no value if its quotes do not match, no name if it assigns nothing."""
    found = re.fullmatch(_ASSIGNMENT, line)
    if found is None:
        return "", None
    name, text = found.groups()
    if text.startswith('"'):
        double = re.fullmatch(_DOUBLE_QUOTED, text)
        return name, _unescaped(double[1]) if double else None
    if text.startswith("'"):
        single = re.fullmatch(_SINGLE_QUOTED, text)
        return name, single[1] if single else None
    return name, re.sub(_COMMENT, "", text).strip()


def _problem(name: str, value: str | None, stored: Mapping[str, StoredSecret]) -> str:
    if not name:
        return "This line is neither a comment nor of the form NAME=value."
    if value is None:
        return f"The quotes around the value of `{name}` do not match."
    if name.startswith(VARIABLE_PREFIX):
        return f"`{name}` has no effect here; settings belong in config.toml."
    if name in stored:
        return f"`{name}` was given before, in line {stored[name].place.line}; only this value counts."
    return ""


def _mode_faults(path: Path) -> list[Fault]:
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return []
    if not mode & ~OWNER_ONLY_FILE & 0o077:
        return []
    problem = f"Others than its owner can read or write this file (mode {mode:04o}); `chmod 600` on it helps."
    return [Fault(problem=problem, file=str(path), expected=f"mode {OWNER_ONLY_FILE:04o}", found=f"mode {mode:04o}")]


def _quoted(value: str) -> str:
    if re.fullmatch(_NEEDS_NO_QUOTES, value):
        return value
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _unescaped(text: str) -> str:
    letters = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(_ESCAPE, lambda found: letters.get(found[1], found[1]), text)
