"""Display options of chats, from settings and commands; and a restart from a chat."""

import asyncio
import signal
from pathlib import Path

from tests.gateway.in_process_gateway import served
from tests.system.gateway_workers import worker, workplace

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import LIMIT

OWNED = 'owners = ["loopback:ann"]'
MARKING = PlatformCapabilities(text_limit=4096, reactions=True)
EDITING = PlatformCapabilities(text_limit=4096, edits=True, idempotent=True)


async def test_a_line_below_replies_tells_what_they_were_made_with(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    below = "[platforms.loopback]\nfooter = true\n"
    async with (
        LoopbackNetwork(EDITING) as network,
        served(tmp_path, network.platform(), server.url, settings=below),
    ):
        network.say("ann", "hello")
        await network.posted(1)
        network.say("ann", "again")
        await network.posted(2)
    first, second = network.shown("ann")
    assert first.startswith("re: hello\n\n`scripted`")
    assert str(tmp_path.name) in first
    # It is no part of what was said: the model never sees it.
    assert all("`scripted`" not in call.body.decode() for call in server.received)
    assert second.startswith("re: again\n\n`scripted`")


async def test_what_a_chat_has_chosen_stays_over_a_restart(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
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


async def test_replies_do_not_grow_where_that_is_not_wanted(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say("word " * 40, pause=0.05))
    quiet = '[platforms.loopback]\nstreaming = false\nprogress = "off"\n'
    async with (
        LoopbackNetwork(EDITING) as network,
        served(tmp_path, network.platform(), server.url, settings=quiet),
    ):
        network.say("ann", "hello")
        await network.posted(1)
    assert [record.kind for record in network.records if record.kind == "edit"] == []
    assert network.shown("ann") == [("word " * 40).strip()]


async def test_a_message_is_marked_while_it_is_worked_on(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say("done"))
    async with (
        LoopbackNetwork(MARKING) as network,
        served(tmp_path, network.platform(), server.url, settings="[platforms.loopback]\nreactions = true\n"),
    ):
        said = network.say("ann", "hello")
        await network.posted(1)
        await network.until(lambda: marks(network, said) == ["👀", ""])


def marks(network: LoopbackNetwork, message_id: str) -> list[str]:
    """Return what was put on a message, one in place of the other."""
    made = [record for record in network.records if record.kind == "reaction"]
    return [record.text for record in made if record.message_id == message_id]


async def test_a_thumb_on_a_question_answers_it_and_no_other(tmp_path: Path, server: ModelServer) -> None:
    asked = Ask("clarify", {"question": "Tea?", "choices": ["Yes", "No"]})
    server.script(Say(calls=[asked]), Say("So be it."))
    async with LoopbackNetwork(MARKING) as network, served(tmp_path, network.platform(), server.url):
        said = network.say("ann", "ask me")
        (question,) = await network.posted(1)
        network.press("ann", said, reaction="👍")
        network.press("ann", question.message_id, reaction="👍", sender="bob")
        network.press("ann", question.message_id, reaction="👍")
        await network.posted(2)
    assert network.shown("ann")[-1] == "So be it."
    assert "answered: Yes" in server.received[-1].body.decode()


async def test_a_restart_from_a_chat_lets_turns_end_and_says_when_it_is_over(
    tmp_path: Path, server: ModelServer
) -> None:
    server.answering(lambda received: Say("slow " * 10, pause=0.1))
    async with LoopbackNetwork(EDITING) as network:
        program = workplace(tmp_path, server, network, access=OWNED)
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


async def test_settings_that_are_changed_meanwhile_count_at_once(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = workplace(tmp_path, server, network)
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


async def test_a_chat_has_words_of_its_own_for_the_agent(tmp_path: Path, server: ModelServer) -> None:
    server.answering(lambda received: Say(f"re: {received.question}"))
    async with LoopbackNetwork(EDITING) as network:
        program = workplace(
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
