"""Routes: a file for each program that may post events, read again when it changes."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from talaria.core.errors import Refused
from talaria.platforms.webhook.signatures import Scheme
from talaria.platforms.webhook.templates import Event, Template, read_template

SUFFIX = ".toml"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Scalar = str | int | bool


class RouteFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A route as its file describes it.

    ``secret`` and ``deliver_secret`` are names of secrets, never their values. ``task`` is what the agent is to do, in
    the owner's words; ``template`` makes the rest of the message from the event, fenced in as words of strangers unless
    ``fenced`` is off. ``when`` lists what has to stand at a place for an event to count. ``id`` tells redeliveries,
    ``repeats`` that equal events without one are several. Events of one ``conversation`` share a transcript. Replies
    are posted to ``deliver_to``; without one they stay there.
    """

    title: str = ""
    scheme: Scheme = "standard"
    secret: str = "WEBHOOK_SECRET"  # noqa: S105 - its name
    header: str = ""
    tolerance_seconds: Annotated[int, Meta(ge=1, le=3600)] = 300
    task: str = ""
    template: str = "{{ body }}"
    fenced: bool = True
    when: dict[str, Scalar | tuple[Scalar, ...]] = {}
    id: str = ""
    repeats: bool = False
    conversation: str = ""
    longest: Annotated[int, Meta(ge=100, le=200_000)] = 20_000
    per_minute: Annotated[int, Meta(ge=1, le=100_000)] = 60
    deliver_to: str = ""
    deliver_secret: str = ""

    @property
    def tolerance(self) -> timedelta:
        """How far a time that was signed may be off."""
        return timedelta(seconds=self.tolerance_seconds)


class Route(Struct, frozen=True):
    """A route that can be served: what its file says, with its templates taken apart."""

    name: str
    told: RouteFile
    template: Template
    id: Template
    conversation: Template

    @property
    def title(self) -> str:
        """What people call it."""
        return self.told.title or self.name

    @property
    def reply_secret(self) -> str:
        """The name of the secret that signs replies."""
        return self.told.deliver_secret or self.told.secret

    def wants(self, event: Event) -> bool:
        """Tell whether an event is one of those that count."""
        return all(event.find(path) in _choices(wanted) for path, wanted in self.told.when.items())


class Routes:
    """The routes in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, tuple[tuple[int, int], Route]] = {}

    def names(self) -> list[str]:
        """Return the names of all of them, those with faults too."""
        return sorted(path.stem for path in self.folder.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.stem))

    def find(self, name: str) -> Route | None:
        """Return a route as it is now, ``None`` where there is none; raises `Refused` with what is wrong with it."""
        if not _NAME.fullmatch(name):
            return None
        path = self.folder / f"{name}{SUFFIX}"
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if name not in self._known or self._known[name][0] != stamp:
                self._known[name] = (stamp, read_route(name, path))
        except FileNotFoundError:
            self._known.pop(name, None)
            return None
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}.") from error
        return self._known[name][1]


def read_route(name: str, path: Path) -> Route:
    """Read a route from its file; raises `Refused` with what is wrong with it."""
    raw = path.read_bytes()
    try:
        told = msgspec.toml.decode(raw, type=RouteFile)
        _check(told)
        return Route(name, told, *map(read_template, (told.template, told.id, told.conversation)))
    except (msgspec.DecodeError, UnicodeDecodeError, Refused) as error:
        raise Refused(f"{path}: {str(error).rstrip('.')}.") from error


def _check(told: RouteFile) -> None:
    if told.deliver_to:
        try:
            target = urlsplit(told.deliver_to)
            sensible = target.scheme in {"http", "https"} and target.hostname and (target.port is None or target.port)
        except ValueError:
            sensible = False
        if not sensible:
            raise Refused("`deliver_to` has to be the http or https address that replies are posted to")
    if told.scheme == "none" and not told.fenced:
        raise Refused("`fenced = false` needs a scheme that signs: nobody knows whose words they are")
    if told.fenced and told.task.lstrip().startswith("/"):
        raise Refused("`task` cannot be a command: what strangers wrote would become its words")
    if told.scheme != "none" and not told.secret:
        raise Refused("`secret` has to name the secret that posts are signed with")


def _choices(wanted: Scalar | tuple[Scalar, ...]) -> set[str]:
    return {_word(one) for one in (wanted if isinstance(wanted, tuple) else (wanted,))}


def _word(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
