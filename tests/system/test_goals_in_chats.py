"""A goal in a chat: its steps and the judge's verdicts are posted there."""

from collections import deque
from pathlib import Path

from tests.gateway.in_process_gateway import run_gateway

from talaria.contracts.platform import PlatformCapabilities
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Received, Say


async def test_verdict_of_the_judge_is_posted_after_each_step(tmp_path: Path) -> None:
    steps = deque(["Step one.", "Step two."])
    verdicts = deque(
        [
            '{"verdict": "continue", "reason": "half of it is missing"}',
            '{"verdict": "done", "reason": "both steps are there"}',
        ]
    )

    def answer(received: Received) -> Say:
        body = received.body.decode()
        if "You judge whether an agent" in body:
            return Say(verdicts.popleft())
        return Say("Steps" if "a title of at most six words" in body else steps.popleft())

    async with ModelServer() as server, LoopbackNetwork(PlatformCapabilities(text_limit=4096)) as network:
        server.answering(answer)
        async with run_gateway(tmp_path, network.platform(), server.url):
            network.say("ann", "/goal take two steps")
            await network.until(lambda: any("both steps are there" in text for text in network.shown("ann")))
    texts = [text for text in network.shown("ann") if "tep" in text or "missing" in text]
    order = [texts.index("Step one."), _index_of(texts, "half of it is missing"), texts.index("Step two.")]
    assert order == sorted(order)
    assert "both steps are there" in texts[-1]


def _index_of(texts: list[str], part: str) -> int:
    (index,) = [index for index, text in enumerate(texts) if part in text]
    return index
