"""Rows of the old key-value table `state` are moved to their new tables by migration, restore and repair."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation, transaction_per_call
from tests.storage.test_migrations import older_store

from talaria.access.api_keys import ApiKey, list_keys
from talaria.access.pairing import PAIRING_ADDRESS, PAIRING_SALT
from talaria.api.completions.routes import HISTORY_DIGEST
from talaria.api.responses.response_store import CONTINUED_RESPONSE
from talaria.api.runs.run_store import RUN_ANSWER, RUN_RESULT, RUN_STOP, read_commands
from talaria.cli.chat.controller import WELCOMED
from talaria.contracts.background_processes import find_process, list_process_summaries, list_processes
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.turns import Summary
from talaria.contracts.values import SINGLE, Stored
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, WorkerId, new_id
from talaria.gateway.outbound.message_writer import POSTED_MESSAGES
from talaria.gateway.outbound.voice_replies import VOICE_REPLY
from talaria.gateway.session_reset import FLUSHED
from talaria.goals.goal import read_goal
from talaria.goals.goal_store import ACTIVE_GOAL
from talaria.platforms.slack.receiver import READ_POSITION
from talaria.platforms.slack.threads import JOINED_THREAD
from talaria.runtime.active_session import OWN_THREAD
from talaria.runtime.agent_cache import make_session_version
from talaria.runtime.completions import PENDING_ANSWERS
from talaria.runtime.delegation.task_store import list_background, read_delegation
from talaria.runtime.live.control import CONTROL_MESSAGE, LIVE_WATCH
from talaria.runtime.open_session import WORKSPACE
from talaria.runtime.questions import SESSION_GRANTS, list_standing_grants
from talaria.runtime.turns import REDIRECTED_REPLY
from talaria.runtime.workers import is_assigned, take_forwarded_updates
from talaria.schedule.due_runs import list_unfinished_runs
from talaria.schedule.heartbeat import LAST_HEARTBEAT
from talaria.schedule.job_store import read_change_counter
from talaria.sessions.chat_directory import list_channels, read_home
from talaria.sessions.keys import list_user_ids
from talaria.sessions.model_context import StoredSummary, read_prefix, read_summary
from talaria.sessions.preferences import Preferences, read_preferences
from talaria.storage.sqlite.recovery import recover
from talaria.tools.todo import PLAN, Step

S, GONE = SessionId(new_id()), SessionId(new_id())
WORKER = WorkerId("host/1:22:3-abc")
AT = "2026-01-02T03:04:05Z"
LETTER = new_id()
ADDRESS = '{"platform":"telegram","chat_id":"7","chat_type":"private"}'
GOAL = f'{{"id":"g1","goal":"climb","set_at":"{AT}","since":"{AT}","usage":{{}}}}'
PROCESS = (
    f'{{"id":"p1","session_id":"{S}","command":"sleep","folder":"/","place":"/","machine":"m","host":"h",'
    f'"watcher":"w","begun_at":"{AT}","context":{{}}}}'
)
DELEGATION = f'"session_id":"{S}","children":[],"surface":"cli","folder":"/","began":"{AT}"'
GRANT = '{"tool":"terminal","pattern":"ls","exact":true,"folder":"/","scope":"session"}'
FORWARDED = (
    f'{{"incoming":{{"external_id":"1","address":{ADDRESS},"sender":{{"id":"7"}},"at":"{AT}"}},'
    f'"session_id":"{S}","item":3}}'
)
RUN = (
    f'{{"job_id":"j1","name":"J","owner":"","due_at":"{AT}","started_at":"{AT}","session_id":"{S}",'
    f'"plan":{{"zone":"UTC","made_at":"{AT}","prompt":"p","deliver":[]}}}}'
)
OLD_ROWS: dict[str, tuple[str, int]] = {
    f"summary:{S}": ('{"summary":{"upto":2,"text":"short"},"shown":true}', 1),
    f"summary:{GONE}": ('{"summary":{"upto":2,"text":"gone"}}', 1),
    f"preferences:{S}": ('{"model":"a:b"}', 4),
    f"prefix:{S}": ('{"instructions":"i","tools":"t","model":"m"}', 1),
    f"workspace:{S}": ("not JSON", 1),
    f"grants:{S}": (f"[{GRANT}]", 1),
    "grants": (f"[{GRANT},{GRANT}]", 1),
    f"todo:{S}": ('[{"text":"one","id":"1"}]', 3),
    f"goal:{S}": (GOAL, 5),
    f"heard:{S}": ('{"process:1":{"call_id":"c","after":3}}', 1),
    "heard:slack:C1": ("17.5", 1),
    f"route:{S}": ('{"turn_id":"t1","move":"m1"}', 1),
    f"farewell:{S}": (f'{{"reason":"idle","bound_at":"{AT}"}}', 1),
    f"api-session:{S}": ('{"key":"k"}', 1),
    f"live:watch:w1:{S}": (f'"{AT}"', 2),
    f"live:word:{LETTER}:{S}": ('{"turn_id":"t1","word":{"type":"stop"}}', 1),
    f"run-result:run_1:{S}": ('{"output":"done"}', 1),
    f"run-order:{S}:stop:run_1:{S}": ("", 1),
    f"run-order:{S}:answer:q1:{S}": ("yes: please", 1),
    f"api-gone-on:resp_1:{S}": ("", 1),
    "api-history:abcd": (f"{S} 12", 1),
    "api-history:dcba": (f"{GONE} 12", 1),
    f"api-conversation:key/trip:{1}": (S, 1),
    "api-key:mine": (f'{{"name":"mine","scopes":["chat","read"],"digest":"d1","created_at":"{AT}"}}', 1),
    "speak:t1": (
        f'{{"session_id":"{S}","turn_id":"t1","address":{ADDRESS},"text":"hi","at":"{AT}"}}', 1
    ),
    "preview:t1": (f'{{"address":{ADDRESS},"messages":["5"]}}', 1),
    "preview:t0": (f'{{"address":{ADDRESS},"messages":["5"]}}', 1),
    "home:telegram": (f'{{"address":{ADDRESS},"name":"Home"}}', 1),
    "channel:telegram:7": (f'{{"address":{ADDRESS},"name":"Chat","seen":"{AT}"}}', 1),
    "identity:whatsapp:1": ('["2","1"]', 1),
    "pairing:salt": ("00ff", 1),
    "pairing:place:telegram:9": (ADDRESS, 1),
    "own-thread:agent:main:slack:C1:17.5": ("", 1),
    "keeper:agent:main:telegram:private:7": (WORKER, 1),
    f"letter:{WORKER}:{LETTER}": (FORWARDED, 1),
    "thread:slack:17.5:C1": ("", 1),
    "job-run:j1:17.000000": (RUN, 1),
    "heartbeat": (f'{{"at":"{AT}","known":[1]}}', 1),
    "schedules": ("", 42),
    "welcomed": ("yes", 1),
    "process:p1": (PROCESS, 2),
    f"delegation:{S}:t1:d1": (f'{{"key":"delegation:{S}:t1:d1",{DELEGATION}}}', 1),
    f"background:{S}:bg-1": (f'{{"key":"background:{S}:bg-1",{DELEGATION},"handle":"bg-1"}}', 1),
    "active-goals-indexed": ("", 1),
    "of:a:plug-in": ("kept", 3),
}  # fmt: skip


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


@pytest.fixture
def migrated(store_location: StoreLocation) -> Iterator[Transaction]:
    """A store that was written by the previous version."""
    _write_old(store_location, 9)
    database = store_location.open(SystemClock())
    yield transaction_per_call(database)
    database.close()


def test_session_values_are_migrated_with_value_and_version(migrated: Transaction) -> None:
    session = migrated.sessions.get(S)
    assert session is not None
    assert read_summary(migrated, S) == StoredSummary(Summary(2, "short"), shown=True)
    assert read_preferences(migrated, S) == Preferences(model="a:b")
    assert make_session_version(migrated, session).preferences == 4
    prefix = read_prefix(migrated, S)
    assert prefix is not None
    assert (prefix.instructions, prefix.tools) == ("i", "t")
    assert WORKSPACE.get(migrated, S) == "not JSON"
    assert PLAN.read(migrated, S) == Stored((Step("one", "1"),), 3)
    assert len(SESSION_GRANTS.get(migrated, S) or ()) == 1
    goal = read_goal(migrated, S)
    assert goal.state is not None
    assert (goal.state.goal, goal.version) == ("climb", 5)
    assert ACTIVE_GOAL.sessions(migrated) == [S]
    assert list(PENDING_ANSWERS.get(migrated, S) or ()) == ["process:1"]
    assert [redirect.move for _, _, redirect in REDIRECTED_REPLY.of_all(migrated)] == ["m1"]
    assert FLUSHED.get(migrated, S) is not None
    assert read_summary(migrated, GONE) is None


def test_session_values_with_items_are_migrated_with_their_items(migrated: Transaction) -> None:
    assert list(LIVE_WATCH.items(migrated, S)) == ["w1"]
    assert list(CONTROL_MESSAGE.items(migrated, S)) == [LETTER]
    result = RUN_RESULT.get(migrated, S, "run_1")
    assert result is not None
    assert result.output == "done"
    commands = read_commands(migrated, S)
    assert (commands.stop, commands.answers) == (frozenset(("run_1",)), {"q1": "yes: please"})
    assert RUN_STOP.items(migrated, S) == {"run_1": True}
    assert RUN_ANSWER.items(migrated, S) == {"q1": "yes: please"}
    assert CONTINUED_RESPONSE.items(migrated, S) == {"resp_1": True}
    assert HISTORY_DIGEST.of_all(migrated) == [(S, "abcd", 12)]
    assert [turn for _, turn, _ in VOICE_REPLY.of_all(migrated)] == ["t1"]
    assert [(session, reply) for session, reply, _ in POSTED_MESSAGES.of_all(migrated)] == [(S, "t1")]


def test_named_values_are_migrated_with_their_keys(migrated: Transaction) -> None:
    home = read_home(migrated, "telegram")
    assert home is not None
    assert (home.name, home.address) == ("Home", Address("telegram", "7"))
    assert [chat.name for chat in list_channels(migrated, "telegram")] == ["Chat"]
    assert list_user_ids(migrated, "whatsapp", "1") == ("2", "1")
    assert PAIRING_SALT.get(migrated, SINGLE) == "00ff"
    assert PAIRING_ADDRESS.keys(migrated) == ["telegram:9"]
    assert OWN_THREAD.get(migrated, "agent:main:slack:C1:17.5")
    assert is_assigned(migrated, "agent:main:telegram:private:7", WORKER)
    assert READ_POSITION.items(migrated) == {"slack:C1": "17.5"}
    assert JOINED_THREAD.items(migrated) == {"slack:17.5:C1": True}
    assert [run.name for run in list_unfinished_runs(migrated)] == ["J"]
    assert LAST_HEARTBEAT.get(migrated, SINGLE) is not None
    assert read_change_counter(migrated) == 42
    assert WELCOMED.get(migrated, SINGLE)
    assert len(list_standing_grants(migrated)) == 2


def test_rows_with_their_own_table_are_migrated_to_it(migrated: Transaction) -> None:
    assert [process.id for process in list_processes(migrated, S)] == ["p1"]
    assert [process.id for process in list_process_summaries(migrated)] == ["p1"]
    assert find_process(migrated, "p").command == "sleep"
    assert [task.handle for task in list_background(migrated, S)] == ["bg-1"]
    assert read_delegation(migrated, f"delegation:{S}:t1:d1") is not None
    assert [update.item for update in take_forwarded_updates(migrated, WORKER)] == [3]
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert list_keys(migrated) == [ApiKey(name="mine", scopes=("chat", "read"), digest="d1", created_at=at)]
    assert migrated.responses.conversation_session("key/trip:1") == S


def test_only_unknown_keys_remain_in_the_state_table(migrated: Transaction) -> None:
    assert [row[0] for row in migrated.archive.rows("state")] == ["of:a:plug-in"]


READ_AS_JSON = (
    f"goal:{S}",
    "speak:t2",
    "process:p2",
    f"background:{S}:bg-2",
    f"letter:{WORKER}:{new_id()}",
    "api-key:odd",
)
BROKEN = (
    "",
    "{}",
    "null",
    "[1",
    "{broken}",
    '{"session_id":}',
    '{"digest":"d2"}',
    '{"digest":"d2","scopes":"chat","created_at":"yesterday"}',
    '{"digest":"d2","scopes":[],"created_at":7}',
)


@pytest.mark.parametrize("value", BROKEN)
def test_broken_values_do_not_prevent_the_migration(store_location: StoreLocation, value: str) -> None:
    rows = {key: row for key, row in OLD_ROWS.items() if not key.startswith("goal:")}
    _write_old(store_location, 9, rows | dict.fromkeys(READ_AS_JSON, (value, 1)))
    database = store_location.open(SystemClock())
    opened = transaction_per_call(database)
    test_session_values_with_items_are_migrated_with_their_items(opened)
    test_named_values_are_migrated_with_their_keys(opened)
    test_rows_with_their_own_table_are_migrated_to_it(opened)
    test_only_unknown_keys_remain_in_the_state_table(opened)
    database.close()


def test_a_value_with_a_null_character_is_moved(store_location: StoreLocation) -> None:
    text = r'"a\u0000\u0000b\\u0000c"'
    value = OLD_ROWS["speak:t1"][0].replace('"hi"', text)
    _write_old(store_location, 9, OLD_ROWS | {"speak:t1": (value, 1)})
    database = store_location.open(SystemClock())
    assert [reply.text for _, _, reply in VOICE_REPLY.of_all(transaction_per_call(database))] == ["a\0\0b\\u0000c"]
    database.close()


def test_older_backup_is_restored_into_the_new_tables(store_location: StoreLocation, tmp_path: Path) -> None:
    """The backup has a table `state` and none of the new ones."""
    _write_old(store_location, 9)
    database = store_location.open(SystemClock())
    rows = database.read(lambda tx: {table: (tx.archive.columns(table), list(tx.archive.rows(table))) for table in
                                     ("sessions", "turns")})  # fmt: skip
    database.close()
    fresh = StoreLocation("sqlite", str(tmp_path / "fresh.db")).open(SystemClock())

    def load(tx: Transaction) -> None:
        tx.archive.clear()
        for table, (columns, values) in rows.items():
            tx.archive.load(table, columns, values)
        old = [(key, value, version, 5) for key, (value, version) in OLD_ROWS.items()]
        tx.archive.load("state", ["key", "value", "version", "updated_at"], old)
        tx.archive.finish()

    fresh.write(load)
    restored = transaction_per_call(fresh)
    test_session_values_are_migrated_with_value_and_version(restored)
    test_session_values_with_items_are_migrated_with_their_items(restored)
    test_named_values_are_migrated_with_their_keys(restored)
    test_rows_with_their_own_table_are_migrated_to_it(restored)
    test_only_unknown_keys_remain_in_the_state_table(restored)
    fresh.close()


def test_repeated_migration_changes_nothing(store_location: StoreLocation, migrated: Transaction) -> None:
    before = {table: list(migrated.archive.rows(table)) for table in migrated.archive.tables()}
    database = store_location.open(SystemClock())
    database.write(lambda tx: tx.archive.finish())
    database.close()
    assert {table: list(migrated.archive.rows(table)) for table in migrated.archive.tables()} == before


def test_repair_of_an_older_file_migrates_its_values(sqlite_location: StoreLocation) -> None:
    _write_old(sqlite_location, 9)
    recover(Path(sqlite_location.address))
    database = sqlite_location.open(SystemClock())
    repaired = transaction_per_call(database)
    test_session_values_are_migrated_with_value_and_version(repaired)
    test_only_unknown_keys_remain_in_the_state_table(repaired)
    database.close()


def _write_old(store_location: StoreLocation, version: int, rows: Mapping[str, tuple[str, int]] = OLD_ROWS) -> None:
    run = older_store(store_location, version)
    run(f"INSERT INTO sessions (id, source, title, created_at, updated_at) VALUES ('{S}', 'cli', 'Old', 5, 5)")
    run(f"INSERT INTO turns (id, session_id, worker, state, started_at) VALUES ('t1', '{S}', 'w', 'running', 5)")
    values = ", ".join(f"('{key}', '{value}', {number}, 5)" for key, (value, number) in rows.items())
    run(f"INSERT INTO state (key, value, version, updated_at) VALUES {values}")
