"""Tool output for the model: readable, bounded, and without secrets."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from talaria.core.ids import SessionId, new_id

OUTPUT_LIMIT = 20_000
MASK = "«masked secret»"

_SHORTEST_SECRET = 8
_OWNER_ONLY = 0o700


def cut_output(text: str, *, limit: int = OUTPUT_LIMIT, rest: str = "") -> str:
    """Return ``text`` with its middle cut out if it is longer than ``limit`` characters.

    Head and tail stay, because a command's beginning says what it does and its end how it went. ``rest`` tells the
    model how to read the missing part.
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    missing = len(text[half:-half].encode("utf-8", "replace"))
    return join_cut(text[:half], text[-half:], missing=missing, rest=rest)


def join_cut(head: str, tail: str, *, missing: int, rest: str = "") -> str:
    """Return head and tail of an output around a note on the ``missing`` bytes between them."""
    how = f"; {rest}" if rest else ""
    return f"{head}\n[… {missing:,} bytes omitted{how} …]\n{tail}"


class SecretMask:
    """Replaces known secrets, and anything that looks like a known kind of key, by `MASK`.

    It hides accidental output. It doesn't stop code that encodes a secret before printing it.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {value for value in values if len(value) >= _SHORTEST_SECRET}
        self._secrets = sorted(known, key=len, reverse=True)

    def add(self, values: Iterable[str]) -> None:
        """Mask these secrets from now on, too."""
        known = {*self._secrets, *(value for value in values if len(value) >= _SHORTEST_SECRET)}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _compile_key_pattern().sub(_mask_key, text)


def make_readable(raw: bytes) -> str:
    """Return the text a terminal would finally show: no colours, no overwritten progress bars, no raw binary."""
    text = re.sub(_ESCAPES, "", raw.decode("utf-8", "replace"))
    if "\r" in text:
        text = "\n".join(map(_apply_carriage_returns, text.replace("\r\n", "\n").split("\n")))
    return re.sub(_CONTROLS, "\ufffd", text)


def _apply_carriage_returns(line: str) -> str:
    """Return what remains of a line whose parts overwrite each other; a trailing carriage return ends it."""
    kept = line.rstrip("\r")
    return kept[kept.rfind("\r") + 1 :] + "\n" * (len(line) - len(kept))


class FullOutputs:
    """Full outputs that were too long for the model, in a private folder per session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make_path(self, session: SessionId) -> Path:
        """Return the path for one more output; its folder exists, the file doesn't."""
        folder = self.find_folder(session)
        folder.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
        return folder / f"{new_id()}.txt"

    def forget(self, session: SessionId) -> None:
        """Delete all outputs of a closed session."""
        import shutil  # noqa: PLC0415 (loaded when a session is deleted)

        shutil.rmtree(self.find_folder(session), ignore_errors=True)

    def find_folder(self, session: SessionId) -> Path:
        """Return the folder of a session, which may not exist."""
        return self._folder / (re.sub(r"[^\w-]", "_", session) or "_")


_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f]"


@cache
def _compile_key_pattern() -> re.Pattern[str]:
    """Return the pattern for keys; compiled on first use, because that takes a while."""
    # The named group "before" stays readable: it tells the model what kind of secret it was.
    return re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
        r"|\b(?:sk-(?:ant-|proj-|or-v1-)?[\w-]{20,}"  # OpenAI, Anthropic, OpenRouter, DeepSeek
        r"|gh[opsur]_\w{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}"  # GitHub, GitLab
        r"|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{20,}"  # Slack
        r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"  # Amazon, Google
        r"|[rs]k_(?:live|test)_\w{16,}|hf_\w{30,}|gsk_\w{40,}|xai-\w{40,}"  # Stripe, Hugging Face, Groq, xAI
        r"|tal_[\w-]{43}"  # our own API
        r"|npm_\w{36}|pypi-[\w-]{40,}"
        r"|\d{8,10}:AA[\w-]{33}"  # Telegram
        r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})"  # a JSON web token
        r"|(?P<before>://[^\s/:@]*:(?=[^\s@/'\"]{4,}@)|\bauthorization: *(?:bearer|basic) +)"  # no port, no tag
        r"[^\s@/'\"]{4,}(?P<after>@|(?=[\s'\"]|\Z))",
        re.IGNORECASE,
    )


def _mask_key(found: re.Match[str]) -> str:
    return f"{found['before'] or ''}{MASK}{found['after'] or ''}"
