"""Count the files, calls and transactions that one message passes through: chat, API, handoff, goal.

Each walk runs the real application in this process, against a scripted model and a Telegram server on loopback.
Functions that also run while the process is idle are left out, and so are transactions that a timer starts: lease
renewals, heartbeats, periodic checks, and checks of the outbox that find nothing. ``make walk`` prints the table;
``tests/house/test_walks.py`` holds the budgets.
"""

import argparse
import asyncio
import dis
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, cast

import talaria

PACKAGE = Path(talaria.__file__).parent.as_posix() + "/"
NOT_COUNTED = "testing/"
GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator
IDLE_SECONDS = 3.0
SETTLE_SECONDS = 0.5
TIMEOUT = 30.0

Function = tuple[str, str]


class Tracer:
    """Records entries into functions of the package `talaria`, in all threads, while ``is_on``."""

    def __init__(self) -> None:
        self.functions: set[Function] = set()
        self.calls: set[tuple[Function, Function]] = set()
        self.transactions: Counter[str] = Counter()
        self.callers: Counter[tuple[str, str, str]] = Counter()
        self.is_on = False
        self._paths: dict[str, str | None] = {}
        self._first_offsets: dict[CodeType, int] = {}

    def install(self) -> None:
        """Trace this thread and all threads that are started later."""
        threading.setprofile(self.trace)
        sys.setprofile(self.trace)

    def clear(self) -> None:
        """Delete all records."""
        for record in (self.functions, self.calls, self.transactions, self.callers):
            record.clear()

    def trace(self, frame: FrameType, event: str, value: object) -> None:
        """Record the entry into a function; resuming a coroutine doesn't count."""
        if not self.is_on:
            return
        if event == "return" and frame.f_code.co_qualname == OUTBOX_CHECK_WORK and value:
            self._count("writes", OUTBOX_CHECK)
        if event != "call":
            return
        path = self._path(frame.f_code)
        if path is None or self._is_resumed(frame) or self._is_maintenance(frame):
            return
        function = (path, frame.f_code.co_qualname)
        self.functions.add(function)
        caller = self._find_caller(frame)
        if caller is not None and caller[0] != path:
            self.calls.add((caller, function))
        if function in TRANSACTIONS:
            origin = self._find_caller(frame, outside="storage/") or self._find_author(frame.f_locals["work"])
            if origin is not None and origin not in TIMER_TRANSACTIONS and origin != OUTBOX_CHECK:
                self._count(TRANSACTIONS[function], origin)

    def _count(self, kind: str, origin: Function) -> None:
        self.transactions[kind] += 1
        self.callers[(kind, *origin)] += 1

    def _find_author(self, work: Callable[..., object]) -> Function | None:
        """Return the function that defines the work of a transaction that runs in its own task."""
        code = work.__code__
        path = self._path(code)
        return (path, code.co_qualname.partition(".<locals>")[0]) if path is not None else None

    def _is_maintenance(self, frame: FrameType) -> bool:
        """Return whether a frame belongs to maintenance of the store, which is independent of messages."""
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_qualname in MAINTENANCE:
                return True
            above = above.f_back
        return False

    def _find_caller(self, frame: FrameType, outside: str = " ") -> Function | None:
        """Return the nearest caller in the package that isn't in the folder ``outside``."""
        above = frame.f_back
        while above is not None:
            path = self._path(above.f_code)
            if path is not None and not path.startswith(outside):
                return path, above.f_code.co_qualname
            above = above.f_back
        return None

    def _path(self, code: CodeType) -> str | None:
        name = code.co_filename
        if name not in self._paths:
            path = name.removeprefix(PACKAGE)
            self._paths[name] = None if path == name or path.startswith(NOT_COUNTED) else path
        return self._paths[name]

    def _is_resumed(self, frame: FrameType) -> bool:
        code = frame.f_code
        if not code.co_flags & GENERATOR_FLAGS:
            return False
        if code not in self._first_offsets:
            starts = (one.offset for one in dis.get_instructions(code) if one.opname == "RETURN_GENERATOR")
            self._first_offsets[code] = next(starts, -2)
        return frame.f_lasti > self._first_offsets[code] + 4


TRANSACTIONS = {
    ("storage/async_store.py", "ThreadedStore.write"): "writes",
    ("storage/async_store.py", "ThreadedStore.read"): "reads",
}
MAINTENANCE = {"SqliteConnection.run_maintenance", "_Checkpointer.note_commit", "_Checkpointer._serve"}
# Started by a timer, independently of messages.
TIMER_TRANSACTIONS = {
    ("app/session/delegation_proxy.py", "_is_needed"),
    ("gateway/chats/registry.py", "ChatRegistry.take_up"),
    ("gateway/chats/registry.py", "CompletionDispatcher.look"),
    ("gateway/dispatcher.py", "ForwardingWorker.look"),
    ("gateway/supervisor.py", "WorkerHeartbeat._beat"),
    ("gateway/outbound/delivery.py", "Delivery._watch_outbox"),
    ("handoff/service.py", "wait_for_handoff"),
    ("handoff/worker.py", "HandoffWorker.start_pending"),
    ("runtime/workers.py", "renew_lease"),
    ("runtime/live/control.py", "WatchedTurns.look"),
    ("schedule/scheduler.py", "Scheduler._poll_if_needed"),
    ("tools/process/supervisor.py", "Supervisor.look"),
}
# Started by a timer and by notifications, several of which may cause one check: counts if it finds rows.
OUTBOX_CHECK = ("gateway/outbound/delivery.py", "Delivery._claim_due")
OUTBOX_CHECK_WORK = "Delivery._claim_due.<locals>.work"
TRACER = Tracer()
if __name__ == "__main__":
    TRACER.install()

# Imported after the tracer is installed, so that threads started by these modules are traced too.
from talaria.app.api import open_api  # noqa: E402
from talaria.app.application import TalariaApplication, open_application  # noqa: E402
from talaria.app.gateway.build import serve_gateway  # noqa: E402
from talaria.commands.command import CommandContext, Display, run_command, select_usable_commands  # noqa: E402  # noqa: E402
from talaria.commands.registry import REGISTRY  # noqa: E402
from talaria.core.aio import StopSignal, SupervisedTaskGroup  # noqa: E402
from talaria.core.messages import Text  # noqa: E402
from talaria.runtime.active_session import ActiveSession  # noqa: E402
from talaria.runtime.open_session import OpenRequest, SurfaceInfo  # noqa: E402
from talaria.settings.load import load_settings  # noqa: E402
from talaria.settings.profiles import Profiles  # noqa: E402
from talaria.settings.secrets import read_secrets  # noqa: E402
from talaria.testing.model_server import ModelServer, Say  # noqa: E402
from talaria.testing.model_server.exchange import Received  # noqa: E402
from talaria.testing.telegram_server import TelegramServer  # noqa: E402


def main() -> int:
    """Run the requested walks, each in its own process, and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walk", nargs="*", metavar="WALK", help=f"{', '.join(WALKS)}; all of them by default")
    parser.add_argument("--json", action="store_true", help="print the counts, and the files, as JSON")
    parser.add_argument("--callers", action="store_true", help="list which functions read and write the store")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(asyncio.run(run_walk(arguments.walk[0]))))
        return 0
    results = {name: _run_in_process(name) for name in arguments.walk or WALKS}
    if arguments.json:
        print(json.dumps(results))
        return 0
    print(f"{'walk':10}{'files':>8}{'functions':>11}{'calls between files':>21}{'writes':>8}{'reads':>7}")
    for name, counted in results.items():
        print(
            f"{name:10}{len(counted['files']):>8}{counted['functions']:>11}{counted['calls']:>21}"
            f"{counted['writes']:>8}{counted['reads']:>7}"
        )
        for line in counted["callers"] if arguments.callers else ():
            print(f"    {line}")
    return 0


def _run_in_process(name: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, name, "--here"], stdout=subprocess.PIPE, text=True, check=True)
    return cast("dict[str, Any]", json.loads(done.stdout))


def _join_reads(caller: Function) -> Function:
    """Return one name for single and grouped reads of the store, as grouping depends on the load."""
    path, function = caller
    grouped = path == "storage/database.py" and function.startswith("ConnectionDatabase.read")
    return (path, "ConnectionDatabase.read") if grouped else caller


async def run_walk(name: str) -> dict[str, Any]:
    """Run one walk in this process and return its counts."""
    with TemporaryDirectory() as home:
        async with ModelServer() as model, TelegramServer(topics=True) as telegram:
            gateway = WalkGateway(Path(home), model, telegram)
            async with gateway.running():
                idle = await WALKS[name](gateway)
    functions = TRACER.functions - idle
    calls = {(_join_reads(caller), called) for caller, called in TRACER.calls if called not in idle}
    callers = [
        f"{count:3} {kind:6} {path}:{function}" for (kind, path, function), count in TRACER.callers.most_common()
    ]
    return {
        "files": sorted({path for path, _ in functions}),
        "functions": len(functions),
        "calls": len(calls),
        "writes": TRACER.transactions["writes"],
        "reads": TRACER.transactions["reads"],
        "callers": callers,
    }


class WalkGateway:
    """Gateway with a Telegram server, its owner and the owner's chat."""

    def __init__(self, home: Path, model: ModelServer, telegram: TelegramServer) -> None:
        self.home = home
        self.on_request: Callable[[], None] = lambda: None
        self.holds_verdicts = False
        self._held_verdicts: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        model.answering(self._answer)
        self.owner = telegram.user("Ann")
        self.chat = telegram.private(self.owner)
        self.profile = Profiles(home).active()
        self.profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.profile.config_file.write_text(
            f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model.url}/v1"\n'
            f'[access]\nowners = ["telegram:{self.owner.id}"]\n'
            "[platforms.telegram]\nenabled = true\n"
            f'[platforms.telegram.options]\nbase_url = "{telegram.base_url}"\n'
            f'base_file_url = "{telegram.base_file_url}"\n'
        )
        secrets = self.profile.folder / ".env"
        secrets.write_text(f"TELEGRAM_BOT_TOKEN={telegram.token}\nTALARIA_API_KEY={API_KEY}\n")
        for file in (secrets, self.profile.config_file):
            file.chmod(0o600)
        self.application: TalariaApplication

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve the gateway while the block runs."""
        environment = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "TALARIA_HOME": str(self.home)}
        stop = StopSignal()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            settings = load_settings(self.profile, environment)
            secrets = read_secrets(self.profile, environment)
            self.application = open_application(settings, self.profile, secrets, environment, stack)
            tasks.create_task(serve_gateway(self.application, stop, as_worker=False))
            try:
                yield
            finally:
                TRACER.is_on = False
                stop.request_stop("the walk is over")

    def _answer(self, request: Received) -> Say:
        body = str(request.body).lower()
        if "judge" in body[:4000] and "verdict" in body:
            verdict = '{"done": false, "verdict": "continue", "reason": "one step is missing"}'
            if not self.holds_verdicts:
                return Say(verdict)
            release = asyncio.Event()
            self._held_verdicts.put_nowait(release)
            return Say(verdict, hold=(0, release))
        self.on_request()
        return Say(f"re: {request.question[:40]}")

    async def ask(self, text: str) -> None:
        """Write a message in the chat and wait for the reply."""
        await self.chat.says(self.owner, text)
        await self.chat.wait_for(lambda message: message.text.startswith(f"re: {text[:10]}"), within=TIMEOUT)

    async def hold_verdict(self) -> asyncio.Event:
        """Wait until only a verdict is pending; return the event that releases it."""
        async with asyncio.timeout(TIMEOUT):
            release = await self._held_verdicts.get()
            await self.settle()
        return release

    async def settle(self) -> None:
        """Wait until every message to the chat is delivered, and a little longer."""
        while await self.application.store.read(lambda tx: tx.outbox.find()):  # noqa: ASYNC110 (the state is in the store)
            await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLE_SECONDS)

    async def trace_idle(self) -> set[Function]:
        """Return the functions that run in an idle gateway, and start recording."""
        await asyncio.sleep(1.0)
        TRACER.clear()
        TRACER.is_on = True
        await asyncio.sleep(IDLE_SECONDS)
        idle = set(TRACER.functions)
        TRACER.clear()
        return idle


API_KEY = "walk-0123456789abcdefghij"


async def telegram_message(gateway: WalkGateway) -> set[Function]:
    """Walk of one message in a chat whose session is open."""
    await gateway.ask("first message")
    idle = await gateway.trace_idle()
    await gateway.ask("second message")
    await gateway.settle()
    return idle


async def api_completion(gateway: WalkGateway) -> set[Function]:
    """Walk of one streamed completion in a new session."""

    import aiohttp  # noqa: PLC0415 (after the tracer)

    headers = {"authorization": f"Bearer {API_KEY}"}

    async def complete(text: str) -> None:
        body = {"model": "talaria", "stream": True, "messages": [{"role": "user", "content": text}]}
        async with http.post(f"{address}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            await response.read()

    async with (
        SupervisedTaskGroup() as jobs,
        open_api(gateway.application, jobs, host="127.0.0.1", port=0) as address,
        aiohttp.ClientSession() as http,
    ):
        await complete("warm up")
        idle = await gateway.trace_idle()
        await complete("a question")
        await asyncio.sleep(0.4)
        TRACER.is_on = False
    return idle


async def goal_round(gateway: WalkGateway) -> set[Function]:
    """Walk of one round of a goal: a verdict, the next turn, and the request for its verdict."""
    await gateway.ask("first message")
    idle = await gateway.trace_idle()
    TRACER.is_on = False
    gateway.holds_verdicts = True
    await gateway.chat.says(gateway.owner, "/goal count to three")
    first = await gateway.hold_verdict()
    TRACER.clear()
    TRACER.is_on = True
    first.set()
    second = await gateway.hold_verdict()
    TRACER.is_on = False
    gateway.holds_verdicts = False
    second.set()
    return idle


async def handoff_to_telegram(gateway: WalkGateway) -> set[Function]:
    """Walk of a handoff from the terminal to the home chat, until the first model call there."""
    await gateway.chat.says(gateway.owner, "/sethome")
    await asyncio.sleep(1.0)
    async with SupervisedTaskGroup() as jobs:
        request = OpenRequest(surface=SurfaceInfo(source="cli", folder=gateway.home, lasting=True))
        session = ActiveSession(gateway.application, request, lambda _: None, jobs)
        await session.open()
        await session.put(Text("a message in the terminal"))
        await session.chat.conversation.wait_until_idle()
        idle = await gateway.trace_idle()
        surface = QuietSurface()
        context = CommandContext(
            arguments="",
            active_session=session,
            surface=surface,
            application=gateway.application,
            commands=select_usable_commands(REGISTRY, terminal=True),
            screen=cast("Any", surface),
        )
        has_begun = asyncio.Event()

        def end() -> None:
            TRACER.is_on = False
            has_begun.set()

        gateway.on_request = end
        await run_command("/handoff telegram", context)
        async with asyncio.timeout(TIMEOUT):
            await has_begun.wait()
        await session.close()
    return idle


class QuietSurface:
    """Terminal surface that shows nothing."""

    name = "cli"
    address = None
    home_address = None
    display = Display()
    theme = ""
    keys = ""

    def change_display(self, display: Display) -> None:
        """Ignore it."""

    def show(self, text: str) -> None:
        """Ignore it."""

    async def choose(self, question: str, choices: object) -> int | None:
        """Choose nothing."""

    def mute(self) -> None:
        """Ignore it."""

    def leave(self) -> None:
        """Ignore it."""


WALKS: dict[str, Callable[[WalkGateway], Coroutine[Any, Any, set[Function]]]] = {
    "telegram": telegram_message,
    "api": api_completion,
    "handoff": handoff_to_telegram,
    "goal": goal_round,
}

if __name__ == "__main__":
    sys.exit(main())
