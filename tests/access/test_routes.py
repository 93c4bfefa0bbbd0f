"""Routes: the most specific one applies, in any order of the settings."""

import pytest

from talaria.access.routes import RoutedMessage, Routes
from talaria.core.addresses import Address
from talaria.settings.model import Settings
from talaria.settings.sections.chats import PersonaSettings, RouteSettings

ROUTES = {
    "everywhere": RouteSettings(persona="butler"),
    "network": RouteSettings(persona="n", network="discord"),
    "server": RouteSettings(persona="s", network="discord", server="7"),
    "person": RouteSettings(persona="p", person="anna"),
    "chat": RouteSettings(persona="c", chat="42"),
    "thread": RouteSettings(persona="t", chat="42", thread="5"),
    "own": RouteSettings(persona="", network="discord", chat="99"),
    "broken": RouteSettings(persona="missing", chat="1000"),
}
SETTINGS = Settings(personas={name: PersonaSettings() for name in ("butler", "n", "s", "p", "c", "t")}, routes=ROUTES)


@pytest.mark.parametrize(
    ("message", "route"),
    [
        (RoutedMessage(Address("telegram", "1")), "everywhere"),
        (RoutedMessage(Address("discord", "1")), "network"),
        (RoutedMessage(Address("discord", "1"), "8"), "network"),
        (RoutedMessage(Address("discord", "1"), "7"), "server"),
        (RoutedMessage(Address("telegram", "1"), "7"), "everywhere"),
        (RoutedMessage(Address("discord", "1"), "7", {"anna", "discord:1"}), "person"),
        (RoutedMessage(Address("discord", "42"), "7", {"anna"}), "chat"),
        (RoutedMessage(Address("discord", "42", "thread", "5"), "7"), "thread"),
        (RoutedMessage(Address("discord", "42", "thread", "6"), "7"), "chat"),
        (RoutedMessage(Address("discord", "99"), "7"), "own"),
        (RoutedMessage(Address("telegram", "1000")), "everywhere"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_most_specific_route_applies(message: RoutedMessage, route: str, *, reverse: bool) -> None:
    routes = dict(reversed(ROUTES.items())) if reverse else ROUTES
    settings = Settings(personas=SETTINGS.personas, routes=routes)
    choice = Routes(settings).choose(message)
    assert (choice.route, choice.persona) == (route, ROUTES[route].persona)
    assert f"`{route}`" in choice.why


def test_default_persona_answers_without_a_matching_route() -> None:
    choice = Routes(Settings(routes={"a": RouteSettings(persona="x", chat="1")})).choose(
        RoutedMessage(Address("telegram", "1"))
    )
    assert (choice.route, choice.persona) == ("", "")


def test_a_route_to_an_unknown_persona_is_reported() -> None:
    assert Routes(SETTINGS).list_problems() == ["broken: there is no persona `missing`."]
