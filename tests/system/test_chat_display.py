"""Display options of chats, from settings and commands; and a restart from a chat."""

import asyncio
import signal
from pathlib import Path

from tests.gateway.in_process_gateway import run_gateway
from tests.system.gateway_workers import gateway_program, worker

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import LIMIT

OWNED = 'owners = ["loopback:ann"]'
MARKING = PlatformCapabilities(text_limit=4096, reactions=True)
EDITING = PlatformCapabilities(text_limit=4096, edits=True, idempotent=True)


async def test_footer_of_replies_names_the_model_and_the_folder(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    footer = "[platforms.loopback]\nfooter = true\n"
    async with (
        LoopbackNetwork(EDITING) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=footer),
    ):
        network.say("ann", "hello")
        await network.posted(1)
        network.say("ann", "again")
        await network.posted(2)
    first, second = network.shown("ann")
    assert first.startswith("re: hello\n\n`scripted`")
    assert str(tmp_path.name) in first
    # The footer is not part of the transcript: the model never sees it.
    assert all("`scripted`" not in call.body.decode() for call in server.received)
    assert second.startswith("re: again\n\n`scripted`")


async def test_display_option_of_a_chat_survives_a_restart(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = gateway_program(tmp_path, server, network, access=OWNED)
        async with worker(program):
            network.say("ann", "/footer on")
            await network.posted(1)
            network.say("ann", "one")
            await network.posted(2)
        async with worker(program):
            network.say("ann", "two")
            await network.posted(3)
    assert network.shown("ann")[1].startswith("re: one\n\n`")
    assert network.shown("ann")[2].startswith("re: two\n\n`")


async def test_replies_are_not_edited_if_streaming_is_off(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say("word " * 40, pause=0.05))
    quiet = '[platforms.loopback]\nstreaming = false\nprogress = "off"\n'
    async with (
        LoopbackNetwork(EDITING) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings=quiet),
    ):
        network.say("ann", "hello")
        await network.posted(1)
    assert [record.kind for record in network.records if record.kind == "edit"] == []
    assert network.shown("ann") == [("word " * 40).strip()]


async def test_message_has_a_reaction_while_its_turn_runs(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say("done"))
    async with (
        LoopbackNetwork(MARKING) as network,
        run_gateway(tmp_path, network.platform(), server.url, settings="[platforms.loopback]\nreactions = true\n"),
    ):
        message_id = network.say("ann", "hello")
        await network.posted(1)
        await network.until(lambda: marks(network, message_id) == ["👀", ""])


def marks(network: LoopbackNetwork, message_id: str) -> list[str]:
    """Return the reactions on a message, each of which replaced the one before."""
    reactions = [record for record in network.records if record.kind == "reaction"]
    return [record.text for record in reactions if record.message_id == message_id]


async def test_thumbs_up_of_the_sender_answers_the_question_it_is_on(tmp_path: Path, server: ModelServer) -> None:
    call = Ask("clarify", {"question": "Tea?", "choices": ["Yes", "No"]})
    server.script(Say(calls=[call]), Say("So be it."))
    async with LoopbackNetwork(MARKING) as network, run_gateway(tmp_path, network.platform(), server.url):
        message_id = network.say("ann", "ask me")
        (question,) = await network.posted(1)
        network.press("ann", message_id, reaction="👍")
        network.press("ann", question.message_id, reaction="👍", sender="bob")
        network.press("ann", question.message_id, reaction="👍")
        await network.posted(2)
    assert network.shown("ann")[-1] == "So be it."
    assert "answered: Yes" in server.received[-1].body.decode()


async def test_restart_from_a_chat_waits_for_turns_and_announces_its_end_once(
    tmp_path: Path, server: ModelServer
) -> None:
    server.answering(lambda received: Say("slow " * 10, pause=0.1))
    async with LoopbackNetwork(EDITING) as network:
        program = gateway_program(tmp_path, server, network, access=OWNED)
        async with worker(program) as process:
            network.say("ann", "think")
            await server.arrived(1)
            network.say("ann", "/restart")
            await network.until(lambda: any("is back" in text for text in network.shown("ann")))
            network.say("ann", "and now?")
            await server.arrived(2)
            await network.until(lambda: sum("slow" in text for text in network.shown("ann")) == 2)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(LIMIT):
                assert await process.wait() == 0
    texts = network.shown("ann")
    assert sum("is back" in text for text in texts) == 1
    assert [call.question for call in server.received if "title" not in call.body.decode()] == ["think", "and now?"]


async def test_changed_display_setting_takes_effect_without_a_restart(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = gateway_program(tmp_path, server, network)
        async with worker(program):
            network.say("ann", "one")
            await network.posted(1)
            changed = await asyncio.to_thread(program.run, "config", "set", "platforms.loopback.footer", "true")
            assert changed.code == 0
            async with asyncio.timeout(LIMIT):
                while not any("\n\n`" in text for text in network.shown("ann")):
                    count = len(network.posts)
                    network.say("ann", "more")
                    await network.posted(count + 1)


async def test_prompt_of_a_chat_is_part_of_its_instructions_only(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = gateway_program(
            tmp_path, server, network, more='[platforms.loopback.prompts]\n"attic" = "Answer in Latin."\n'
        )
        async with worker(program):
            for chat in ("attic", "cellar"):
                network.say(chat, "hello", sender=chat)
            await network.posted(2)
    latin = ["Answer in Latin." in call.json["messages"][0]["content"] for call in server.received if _is_turn(call)]
    assert sorted(latin) == [False, True]


def _is_turn(call: Received) -> bool:
    return "title of at most" not in call.body.decode()
