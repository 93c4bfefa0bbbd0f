"""API servers of Talaria and Hermes under the same load, alternately."""

from collections import defaultdict
from collections.abc import Iterator

from bench import peer_hermes
from bench.agent_server import run_model_server
from bench.api_load import Load
from bench.api_servers import Server, percentile_ms, run_talaria
from bench.measure import Measurement

_MOST_IN_FLIGHT = 64
_WARM_UP = 64
# Rounds, and requests per round by requests in flight. With the warm-up, a full run makes 1,000 sessions per server.
_QUICK = 1, {1: 16, 8: 32, _MOST_IN_FLIGHT: 128}
_FULL = 4, {1: 10, 8: 20, _MOST_IN_FLIGHT: 204}
_THROUGHPUT, _LATENCY, _MEMORY = 50, 1 / 20, 1 / 2
_NO_GOAL = 5000.0


class _MeasuredServer:
    """A server with the times of its answers and its memory in MB."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loads: defaultdict[int, list[Load]] = defaultdict(list)
        self._cpu_seconds: defaultdict[int, float] = defaultdict(float)
        self._warm_memory = 0.0

    async def warm_up(self) -> None:
        await self._server.load(_MOST_IN_FLIGHT, _WARM_UP)
        self._warm_memory = self.memory()

    async def measure(self, in_flight: int, count: int) -> None:
        before = self._server.cpu_time()
        self._loads[in_flight].append(await self._server.load(in_flight, count))
        self._cpu_seconds[in_flight] += self._server.cpu_time() - before

    def rate(self, in_flight: int) -> float:
        return len(self._times(in_flight)) / sum(load.seconds for load in self._loads[in_flight])

    def percentile(self, in_flight: int, percent: int) -> float:
        return percentile_ms(self._times(in_flight), percent)

    def cpu_per_answer(self, in_flight: int) -> float:
        """Return the CPU time per answer in ms, which depends less than wall time on other load."""
        return self._cpu_seconds[in_flight] / len(self._times(in_flight)) * 1000

    def memory(self) -> float:
        return self._server.memory()

    def memory_growth(self) -> float:
        """Return the growth of memory since the warm-up."""
        return self.memory() - self._warm_memory

    def _times(self, in_flight: int) -> list[float]:
        return [time for load in self._loads[in_flight] for time in load.total]


async def compare(quick: bool) -> list[Measurement]:
    """Measure both with a model that answers at once; Hermes takes about four minutes for 1,000 answers."""
    rounds, counts = _QUICK if quick else _FULL
    async with (
        run_model_server() as model,
        peer_hermes.api_server(model, model="short") as hermes,
        run_talaria(model) as server,
    ):
        peer, ours = _MeasuredServer(hermes), _MeasuredServer(server)
        for one in (peer, ours):
            await one.warm_up()
        for _ in range(rounds):
            for in_flight, count in counts.items():
                for one in (peer, ours):
                    await one.measure(in_flight, count)
        loads = [measurement for in_flight in counts for measurement in _compare_loads(ours, peer, in_flight)]
        return [*loads, *_compare_memory(ours, peer, rounds * sum(counts.values()))]


def _compare_loads(ours: _MeasuredServer, peer: _MeasuredServer, in_flight: int) -> Iterator[Measurement]:
    """Yield the ratios to the peer; those without a goal of their own only have to be better."""
    suffix = f"{in_flight} in flight, vs hermes"
    rate_goal = _THROUGHPUT if in_flight == _MOST_IN_FLIGHT else 1
    yield Measurement(
        f"non-streamed answers, {suffix}", ours.rate(in_flight), "req/s", rate_goal, peer.rate(in_flight), at_least=True
    )
    for percent in (50, 99):
        latency_goal = _LATENCY if (in_flight, percent) == (1, 50) else 1
        times = ours.percentile(in_flight, percent), peer.percentile(in_flight, percent)
        yield Measurement(f"non-streamed answer p{percent}, {suffix}", times[0], "ms", latency_goal, times[1])
    yield Measurement(
        f"non-streamed answer CPU, {suffix}", ours.cpu_per_answer(in_flight), "ms", 1, peer.cpu_per_answer(in_flight)
    )


def _compare_memory(ours: _MeasuredServer, peer: _MeasuredServer, sessions: int) -> Iterator[Measurement]:
    after = f"memory after {_WARM_UP + sessions:,} sessions, vs hermes"
    yield Measurement(after, ours.memory(), "MB", _MEMORY, peer.memory())
    for name, one in (("ours", ours), ("hermes", peer)):
        yield Measurement(
            f"memory per session, last {sessions} sessions, {name}",
            one.memory_growth() / sessions * 1000,
            "kB",
            _NO_GOAL,
        )
