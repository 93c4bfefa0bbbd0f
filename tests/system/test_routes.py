"""Personas in one gateway: each answers where its route says, with its own model, tools, memory and budget."""

from pathlib import Path
from typing import Any

from tests.gateway.in_process_gateway import InProcessGateway, run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.ids import SessionId
from talaria.settings.load import load_settings
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say

NETWORK = PlatformCapabilities(text_limit=4096, edits=True, buttons=True, idempotent=True, file_limit=1_000_000)
PERSONAS = """owners = ["loopback:boss"]
[approval]
mode = "off"
[models.other-model]
input_price = 1.0
output_price = 1.0
[personas.ops]
instructions = "You are Ops."
model = "other-model"
toolsets = ["memory"]
budget = 0.5
[routes.ops]
network = "loopback"
chat = "ops"
persona = "ops"
"""


def tools_of(request: Any) -> set[str]:
    return {one["function"]["name"] for one in request.get("tools", ())}


async def replied(network: LoopbackNetwork, chat: str, count: int) -> None:
    await network.until(lambda: len(network.shown(chat)) >= count and network.shown(chat)[-1].startswith("re"))


def reply(received: Received) -> Say:
    return Say(f"re {received.json['model']}")


async def find_sessions(gateway: InProcessGateway) -> list[SessionId]:
    found = await gateway.application.store.read(lambda tx: tx.sessions.find(SessionFilter(limit=None)))
    return [one.id for one in found]


async def test_each_chat_is_answered_by_the_persona_of_its_route(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        LoopbackNetwork(NETWORK) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=PERSONAS),
    ):
        server.script(
            Say(calls=[Ask("memory", {"action": "add", "text": "The safe opens with 4711."})]), Say("re: stored")
        )
        network.say("home", "remember it", sender="boss")
        await replied(network, "home", 1)
        server.answering(reply)
        network.say("ops", "hello", sender="boss")
        await replied(network, "ops", 1)
        asked = server.received[-1]
        network.say("ops", "/new", sender="boss")
        network.say("ops", "again", sender="boss")
        await network.until(lambda: network.shown("ops")[-1] == "re other-model" and len(network.shown("ops")) == 3)
        again = server.received[-1]
    for request in (asked, again):
        assert request.json["model"] == "other-model"
        assert request.json["messages"][0]["content"].startswith("You are Ops.")
        assert tools_of(request.json) == {"memory", "session_search"}
        assert "4711" not in request.body.decode()


async def test_changed_route_takes_effect_with_the_next_message_in_a_new_session(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(reply)
        async with run_gateway(tmp_path, network.platform(), server.url, settings=PERSONAS) as gateway:
            network.say("ops", "one", sender="boss")
            await replied(network, "ops", 1)
            first = await find_sessions(gateway)
            application = gateway.application
            file = application.profile.config_file
            file.write_text(file.read_text().replace('chat = "ops"', 'chat = "elsewhere"'))
            application.settings_admin.replace(load_settings(application.profile, application.environment))
            network.say("ops", "two", sender="boss")
            await replied(network, "ops", 2)
            second = await find_sessions(gateway)
            shown = network.shown("ops")
    assert shown == ["re other-model", "re scripted"]
    assert len(first) == 1
    assert len(second) == 2
    assert "one" not in str(server.received[-1].json["messages"][1:])


async def test_the_budget_of_a_persona_stops_only_that_persona(tmp_path: Path) -> None:
    settings = PERSONAS.replace("budget = 0.5", "budget = 0.000001")
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(reply)
        async with run_gateway(tmp_path, network.platform(), server.url, settings=settings):
            network.say("ops", "hello", sender="boss")
            await network.until(lambda: bool(network.shown("ops")))
            network.say("home", "hello", sender="boss")
            await replied(network, "home", 1)
            assert not network.shown("ops")[0].startswith("re")
            assert network.shown("home") == ["re scripted"]
