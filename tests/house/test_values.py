"""The written schema of stored values: each has one name, one type and one owner."""

import ast
import re
from collections import Counter

from scripts.reference import find_stored_values
from tests.house.tree import files, name, nodes

import talaria.sessions.branches as branches

SESSION_VALUES = {
    "active_goal": "bool",
    "api_origin": "ApiOrigin",
    "continued_response": "bool",
    "control_message": "ControlMessage",
    "flushed": "_FlushedSession",
    "goal": "GoalState | None",
    "grants": "list[Grant]",
    "history_digest": "int",
    "live_watch": "datetime",
    "open_question": "OpenQuestion",
    "pending_answers": "dict[str, _PendingAnswer]",
    "plan_mode": "PlanMode",
    "posted_messages": "PostedMessages",
    "preferences": "Preferences",
    "prompt_prefix": "Prefix",
    "redirected_reply": "RedirectedReply",
    "run_answer": "str",
    "run_question": "RunQuestion",
    "run_report_lock": "bool",
    "run_result": "RunResult",
    "run_stop": "bool",
    "run_turn": "TurnLink",
    "summary": "StoredSummary",
    "todo": "tuple[Step, ...]",
    "voice_reply": "PendingVoiceReply",
    "workspace": "str",
    "web_notice": "WebNotice",
    "web_taken_from": "Address",
    "web_unread": "int",
}
NAMED_VALUES = {
    "chat_worker": "str",
    "discord_progress": "ReadProgress",
    "display": "Display",
    "gateway_worker": "WorkerStatus",
    "home_chat": "HomeChat",
    "imported": "ImportRecord",
    "email_position": "str",
    "email_threads": "MailThread",
    "irc_nick": "str",
    "irc_received": "ReceivedLine",
    "job_run": "PendingRun",
    "known_chat": "KnownChannel",
    "room_message": "RoomMessage",
    "routed_persona": "str",
    "late_answer": "str",
    "last_heartbeat": "_LastBeat",
    "mattermost_position": "ReadPosition",
    "matrix_invitations": "str",
    "matrix_position": "str",
    "memory_undo": "_UndoState",
    "ntfy_position": "str",
    "own_thread": "bool",
    "pairing_address": "Address",
    "pairing_salt": "str",
    "provider_note": "str",
    "requested_restart": "datetime",
    "restart_request": "_RestartRequest",
    "schedule_changes": "bool",
    "signal_received": "Envelope",
    "slack_position": "str",
    "slack_thread": "bool",
    "skill_usage": "SkillUsage",
    "sms_listed": "datetime",
    "sms_opted_out": "bool",
    "standing_grants": "list[Grant]",
    "sticker": "str",
    "store_probe": "bool",
    "teams_conversation": "ConversationReference",
    "telegram_album_part": "str",
    "user_ids": "tuple[str, ...]",
    "voice_choice": "bool",
    "web_browser": "Browser",
    "web_browser_waiting": "WaitingBrowser",
    "web_push": "PushSubscription",
    "web_server": "WebServer",
    "web_sign_in_code": "SignInCode",
    "welcomed": "bool",
    "whatsapp_chat": "LastReceived",
    "xmpp_position": "ArchivePosition",
}
USERS = ("src/talaria/contracts/values.py", "src/talaria/storage/")
DECLARATION = re.compile(r"\b(?:Session|Named)Value\(")


def test_every_value_is_listed_with_its_type() -> None:
    """A value of another type can't be read by the next version: change the name too, or migrate it."""
    found = list(find_stored_values())
    assert {key: of for kind, key, of, _ in found if kind == "SessionValue"} == SESSION_VALUES
    assert {key: of for kind, key, of, _ in found if kind == "NamedValue"} == NAMED_VALUES


def test_no_two_values_share_a_name() -> None:
    names = Counter(key for _, key, _, _ in find_stored_values())
    assert [key for key, count in names.items() if count > 1] == []


def test_every_value_declaration_is_found() -> None:
    """A computed name, or a type that is not written out, would be missing in the lists above."""
    sources = [path for path in files("src", suffix=".py") if name(path) != USERS[0]]
    written = sum(len(DECLARATION.findall(path.read_text())) for path in sources)
    assert written == len(list(find_stored_values()))


def test_only_the_values_module_uses_the_tables() -> None:
    users = [
        name(path)
        for path in files("src", "bench", suffix=".py")
        if not name(path).startswith(USERS)
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in ("session_values", "named_values")
    ]
    assert users == []


def test_branches_copy_values_that_exist() -> None:
    assert set(branches.COPIED_VALUES) <= set(SESSION_VALUES)
