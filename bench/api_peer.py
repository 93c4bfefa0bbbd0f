"""The API servers of Talaria and of Hermes under the same load, in turns."""

from collections import defaultdict
from collections.abc import Iterator

from bench import peer_hermes
from bench.agent_server import served
from bench.api_load import Load
from bench.api_servers import Server, talaria, within
from bench.measure import Measurement

_MOST = 64
_WARM = 64
# Rounds, and how often is asked in each of them with so many in flight. In full, with those that warm it up, each
# server has 1,000 conversations.
_QUICK = 1, {1: 16, 8: 32, _MOST: 128}
_FULL = 4, {1: 10, 8: 20, _MOST: 204}
_THROUGHPUT, _LATENCY, _MEMORY = 50, 1 / 20, 1 / 2
_ANY = 5000.0


class _Measured:
    """One of the servers, what it took for its answers, and what it held in memory, in MB."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loads: defaultdict[int, list[Load]] = defaultdict(list)
        self._worked: defaultdict[int, float] = defaultdict(float)
        self._warm = 0.0

    async def warm_up(self) -> None:
        await self._server.load(_MOST, _WARM)
        self._warm = self.memory()

    async def ask(self, in_flight: int, count: int) -> None:
        before = self._server.processor_time()
        self._loads[in_flight].append(await self._server.load(in_flight, count))
        self._worked[in_flight] += self._server.processor_time() - before

    def rate(self, in_flight: int) -> float:
        return len(self._times(in_flight)) / sum(load.seconds for load in self._loads[in_flight])

    def within(self, in_flight: int, percent: int) -> float:
        return within(self._times(in_flight), percent)

    def work(self, in_flight: int) -> float:
        """Return the processor time of an answer in ms, which depends less than the clock on what else runs."""
        return self._worked[in_flight] / len(self._times(in_flight)) * 1000

    def memory(self) -> float:
        return self._server.memory()

    def grown(self) -> float:
        """Return by how much its memory has grown since it was warm."""
        return self.memory() - self._warm

    def _times(self, in_flight: int) -> list[float]:
        return [time for load in self._loads[in_flight] for time in load.whole]


async def compared(quick: bool) -> list[Measurement]:
    """Measure both with a model that answers at once; Hermes takes some four minutes for its 1,000 answers."""
    rounds, counts = _QUICK if quick else _FULL
    async with (
        served() as model,
        peer_hermes.api_server(model, model="words") as hermes,
        talaria(model) as server,
    ):
        peer, ours = _Measured(hermes), _Measured(server)
        for one in (peer, ours):
            await one.warm_up()
        for _ in range(rounds):
            for in_flight, count in counts.items():
                for one in (peer, ours):
                    await one.ask(in_flight, count)
        beside = [figure for in_flight in counts for figure in _beside(ours, peer, in_flight)]
        return [*beside, *_memory(ours, peer, rounds * sum(counts.values()))]


def _beside(ours: _Measured, peer: _Measured, in_flight: int) -> Iterator[Measurement]:
    """Yield the ratios; those that have no goal of their own are to be better than the peer's, no more."""
    where = f"{in_flight} in flight, vs hermes"
    most = _THROUGHPUT if in_flight == _MOST else 1
    yield Measurement(
        f"whole answers, {where}", ours.rate(in_flight), "req/s", most, peer.rate(in_flight), at_least=True
    )
    for percent in (50, 99):
        least = _LATENCY if (in_flight, percent) == (1, 50) else 1
        times = ours.within(in_flight, percent), peer.within(in_flight, percent)
        yield Measurement(f"whole answer p{percent}, {where}", times[0], "ms", least, times[1])
    yield Measurement(f"whole answer CPU, {where}", ours.work(in_flight), "ms", 1, peer.work(in_flight))


def _memory(ours: _Measured, peer: _Measured, asked: int) -> Iterator[Measurement]:
    after = f"memory after {_WARM + asked:,} conversations, vs hermes"
    yield Measurement(after, ours.memory(), "MB", _MEMORY, peer.memory())
    for name, one in (("ours", ours), ("hermes", peer)):
        yield Measurement(f"memory for each of the last {asked}, {name}", one.grown() / asked * 1000, "kB", _ANY)
