"""Routes: which persona answers a message, by thread, chat, person, server and network."""

from collections.abc import Collection

from msgspec import Struct

from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.settings.model import Settings
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, RouteSettings

# The persona to which a session key was last routed. A handoff binds a session on purpose, whatever the persona.
ROUTED_PERSONA = NamedValue("routed_persona", str)
BY_HANDOFF = "*"
_RANKS = {"thread": 16, "chat": 8, "person": 4, "server": 2, "network": 1}


class RoutedMessage(Struct, frozen=True):
    """Properties of a message that decide about its route; ``people`` are all names of its sender.

    They are empty in a session that several people share, so that no message there changes the persona.
    """

    address: Address
    server: str = ""
    people: Collection[str] = ()


class RouteChoice(Struct, frozen=True, omit_defaults=True):
    """Chosen route, its persona and the reason; both names are empty if no route matches."""

    route: str = ""
    persona: str = ""
    why: str = "No route matches: the agent itself answers."


class Routes:
    """Routes of one version of the settings. Immutable, and independent of the store."""

    def __init__(self, settings: Settings) -> None:
        self._personas = settings.personas
        self._accounts = settings.platforms
        self._routes = sorted(settings.routes.items(), key=lambda route: -_rank(route[1]))

    @property
    def names(self) -> list[str]:
        """The names of the routes, the most specific first."""
        return [name for name, _ in self._routes]

    def choose(self, message: RoutedMessage) -> RouteChoice:
        """Return the most specific route that matches; of equally specific ones the first in the settings."""
        for name, route in self._routes:
            if (not route.persona or route.persona in self._personas) and _matches(route, message):
                return RouteChoice(name, route.persona, f"`{name}` matches {_describe(route)}.")
        return RouteChoice()

    def list_problems(self) -> list[str]:
        """Return one sentence for each route that can't be used."""
        named = sorted(self._routes)
        return [
            f"{name}: there is no persona `{route.persona}`."
            for name, route in named
            if route.persona and route.persona not in self._personas
        ] + [
            f"{name}: {problem}"
            for name, route in named
            if route.server and (problem := self.find_server_problem(route.network))
        ]

    def find_server_problem(self, account: str) -> str:
        """Return why a route can't name a server of this network or account; empty if it can."""
        network = self._accounts[account].network or account if account in self._accounts else account
        known = BUILT_IN_PLATFORMS.get(network)
        if known is None or known.server:
            return ""
        have = ", ".join(name for name, one in BUILT_IN_PLATFORMS.items() if one.server)
        return f"{network} has no servers; name a chat or a person instead. These have servers: {have}."


def _rank(route: RouteSettings) -> int:
    return sum(rank for field, rank in _RANKS.items() if getattr(route, field))


def _matches(route: RouteSettings, message: RoutedMessage) -> bool:
    address = message.address
    pairs = (
        (route.network, address.platform),
        (route.server, message.server),
        (route.chat, address.chat_id),
        (route.thread, address.thread_id),
    )
    return all(not expected or expected == found for expected, found in pairs) and (
        not route.person or route.person in message.people
    )


def _describe(route: RouteSettings) -> str:
    given = [f"{field} {getattr(route, field)}" for field in reversed(_RANKS) if getattr(route, field)]
    return ", ".join(given) or "every message"
