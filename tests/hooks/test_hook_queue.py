"""Queue of a hook: events are handled in order, one at a time, with a timeout and a limit on their number."""

import json
import os
import time
from pathlib import Path

import pytest
from tests.hooks.hook_folders import ALL, RecordedHook, notes, write_hook

QUICK = "events: ['*']\ntimeout_seconds: 0.2\n"
HANGS = """\
import threading
from pathlib import Path

def handle(event, facts):
    if event == "agent:start":
        threading.Event().wait()
    Path(__file__).with_name("done").write_text(event)
"""


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_events_are_handled_in_order_with_their_facts(tmp_path: Path) -> None:
    folder, hook = write_hook(tmp_path, "one"), RecordedHook(tmp_path)
    for number in range(100):
        hook.put("agent:step", step=number, text="ümlaut \ud800")
    assert hook.finish()
    assert notes(folder) == [("agent:step", {"step": number, "text": "ümlaut \ud800"}) for number in range(100)]
    assert {report.trouble for report in hook.reports} == {""}


def test_async_handler_is_awaited(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom pathlib import Path\n"
        "async def handle(event, facts):\n"
        "    await asyncio.sleep(0)\n"
        "    Path(__file__).with_name('done').write_text(event)\n"
    )
    folder = write_hook(tmp_path, "one", handler=code)
    assert RecordedHook(tmp_path).handled("session:end").trouble == ""
    assert (folder / "done").read_text() == "session:end"


def test_handler_can_import_modules_of_its_folder(tmp_path: Path) -> None:
    folder = write_hook(tmp_path, "my.own-hook", handler="from .words import handle\n")
    (folder / "words.py").write_text("def handle(event, facts):\n    raise LookupError(event)\n")
    assert "LookupError: agent:end" in RecordedHook(tmp_path).handled().trouble


def test_a_handler_that_raises_is_reported_with_its_line_and_called_again(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", handler="def handle(event, facts):\n    return 1 / facts['number']\n")
    hook = RecordedHook(tmp_path)
    assert hook.handled(number=0).trouble == "ZeroDivisionError: division by zero (handler.py, line 2)"
    assert hook.handled(number=1).trouble == ""


def test_handler_that_exits_is_reported_as_failed(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", handler="import sys\ndef handle(event, facts):\n    sys.exit(3)\n")
    assert RecordedHook(tmp_path).handled().trouble == "SystemExit: 3 (handler.py, line 3)"


def test_a_handler_that_cannot_be_loaded_is_reported_once(tmp_path: Path) -> None:
    folder = write_hook(tmp_path, "one", handler="import os\nimport nothing_of_this_name\ndef handle(e, f): ...\n")
    hook = RecordedHook(tmp_path)
    trouble = hook.handled().trouble
    hook.put("agent:end")
    assert f"{folder / 'handler.py'}, line 2: ModuleNotFoundError" in trouble
    assert hook.finish()
    assert len(hook.reports) == 1


def test_hanging_handler_is_no_longer_waited_for(tmp_path: Path) -> None:
    folder = write_hook(tmp_path, "one", QUICK, HANGS)
    hook = RecordedHook(tmp_path)
    hook.put("agent:start")
    hook.put("agent:end")
    assert not hook.finish(1.5)
    assert hook.reports[0].trouble == "it didn't return within 0.2 s and is no longer waited for"
    assert (folder / "done").read_text() == "agent:end"
    hook.queue.close()


@pytest.mark.slow
def test_handler_that_always_hangs_uses_a_limited_number_of_threads(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", QUICK, HANGS)
    hook = RecordedHook(tmp_path, most=4)
    for _ in range(20):
        hook.put("agent:start")
    assert not hook.finish(4)
    assert len(hook.reports) == 3
    assert hook.queue.dropped >= 20 - 4 - 3
    hook.queue.close()


def test_hanging_async_handler_is_cancelled(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom pathlib import Path\n"
        "async def handle(event, facts):\n"
        "    try:\n        await asyncio.Event().wait()\n"
        "    finally:\n        Path(__file__).with_name('done').write_text('cancelled')\n"
    )
    folder = write_hook(tmp_path, "one", QUICK, code)
    assert RecordedHook(tmp_path).handled().trouble == "it took longer than 0.2 s and was stopped"
    assert (folder / "done").read_text() == "cancelled"


def test_timeout_error_of_a_handler_is_reported_as_its_own_error(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", handler="async def handle(event, facts):\n    raise TimeoutError('far side')\n")
    assert RecordedHook(tmp_path).handled().trouble == "TimeoutError: far side (handler.py, line 2)"


def test_events_over_the_queue_limit_are_dropped_and_counted(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    code = (
        "from pathlib import Path\ndef handle(event, facts):\n"
        f"    if facts['number'] == 0:\n        Path({str(gate)!r}).read_text()\n"
    )
    write_hook(tmp_path / "hooks", "one", handler=code)
    hook = RecordedHook(tmp_path / "hooks", most=10)
    hook.put("agent:step", number=0)
    with gate.open("w"):  # the pipe is open on both sides now: the handler is running
        for number in range(1, 1000):
            hook.put("agent:step", number=number)
    assert hook.finish()
    assert (len(hook.reports), hook.queue.dropped) == (11, 989)


def test_the_session_context_is_bound_while_a_handler_runs(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom talaria.sessions.context import get_session_env\n"
        "async def handle(event, facts):\n"
        "    names = ('ID', 'PLATFORM', 'CHAT_ID', 'KEY')\n"
        "    values = [get_session_env(f'TALARIA_SESSION_{name}', 'unbound') for name in names]\n"
        "    Path(__file__).with_name('done').write_text(' '.join(values))\n"
    )
    folder = write_hook(tmp_path, "one", handler=code)
    RecordedHook(tmp_path).handled(session_id="s1", platform="telegram", chat_id="7")
    assert (folder / "done").read_text() == "s1 telegram 7 "


@pytest.mark.slow
def test_a_command_gets_the_event_as_json_and_the_session_in_its_environment(tmp_path: Path) -> None:
    run = 'cat > "$OUT"; echo "$TALARIA_HOOK_EVENT $TALARIA_SESSION_ID $TALARIA_SESSION_CHAT_ID ${PWD##*/}"'
    write_hook(tmp_path, "one", f"{ALL}run: {run}\n", handler="")
    out = tmp_path / "out"
    environment = {"PATH": "/usr/bin:/bin", "OUT": str(out), "TALARIA_SESSION_CHAT_ID": "of another"}
    report = RecordedHook(tmp_path, environment=environment).handled(
        "agent:end", session_id="s1", text="ünd\nso", steps=2
    )
    assert (report.trouble, report.output) == ("", "agent:end s1  one")
    assert json.loads(out.read_text()) == {
        "event": "agent:end",
        "facts": {"session_id": "s1", "text": "ünd\nso", "steps": 2},
    }


@pytest.mark.slow
def test_failed_command_is_reported_with_its_error_output(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", f"{ALL}run: echo no such luck >&2; exit 4\n", handler="")
    assert RecordedHook(tmp_path).handled().trouble == "the command ended with exit code 4: no such luck"


@pytest.mark.slow
def test_command_that_does_not_read_its_input_succeeds(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", f"{ALL}run: exec true\n", handler="")
    assert RecordedHook(tmp_path).handled(text="x" * 1_000_000).trouble == ""


@pytest.mark.slow
def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    run = "sleep 300 & echo $! > child; wait"
    folder = write_hook(tmp_path, "one", f"{QUICK}run: {run}\n", handler="")
    report = RecordedHook(tmp_path, environment={"PATH": "/usr/bin:/bin"}).handled()
    assert report.trouble == "it took longer than 0.2 s and was stopped"
    deadline = time.monotonic() + 10
    while not is_gone(int((folder / "child").read_text())):
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_output_of_a_command_is_limited(tmp_path: Path) -> None:
    write_hook(tmp_path, "one", f"{ALL}run: head -c 50000000 /dev/zero | tr '\\0' x; echo end\n", handler="")
    report = RecordedHook(tmp_path, environment={"PATH": "/usr/bin:/bin"}).handled()
    assert report.output.endswith("xend")
    assert len(report.output) <= 4000


@pytest.mark.slow
def test_closing_the_queue_kills_the_running_command(tmp_path: Path) -> None:
    folder = write_hook(tmp_path, "one", f"{ALL}run: echo $$ > pid; exec sleep 300\n", handler="")
    hook = RecordedHook(tmp_path, environment={"PATH": "/usr/bin:/bin"})
    hook.put("agent:end")
    deadline = time.monotonic() + 10
    while not ((folder / "pid").exists() and (folder / "pid").read_text()):
        assert time.monotonic() < deadline
    hook.queue.close()
    assert hook.finish()
    assert is_gone(int((folder / "pid").read_text()))
