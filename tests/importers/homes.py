"""Digest of another agent's home, and the sessions imported from it."""

import hashlib
from pathlib import Path

from tests.app.program import Program
from tests.cli.stored_sessions import read

from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.messages import Message

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def digest_of(home: Path) -> dict[str, str]:
    """Return a digest of every file by its path, to detect changed, new and missing files."""
    files = sorted(path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def sessions_of(program: Program) -> dict[str, Session]:
    """Return all sessions of a profile by title."""
    found = read(program, lambda tx: tx.sessions.find(SessionFilter(archived=None, limit=None)))
    return {session.title: session for session in found}


def messages_of(program: Program, session: Session) -> list[Message]:
    """Return the transcript of a session, with the history that it shares."""
    return [stored.message for stored in read(program, lambda tx: tx.messages.load(session.id))]
