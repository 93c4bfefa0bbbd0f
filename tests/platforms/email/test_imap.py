"""The IMAP client with servers that differ from Dovecot: without IDLE, with odd answers, or hanging up."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.platforms.email.imap import ImapConnection, open_imap
from talaria.testing.wait import LIMIT

PATIENCE = timedelta(seconds=30)


class ScriptedImap:
    """A server that answers each command by its first words; ``{tag}`` in an answer is the tag of the command."""

    def __init__(self, answers: Mapping[str, Sequence[str]], capabilities: str) -> None:
        self._answers = {"CAPABILITY": [f"* CAPABILITY IMAP4rev1 {capabilities}", "{tag} OK done"], **answers}
        self.received: list[str] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except OSError:  # the client has disconnected
            pass
        finally:
            writer.transport.abort()
            self.ended.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK ready\r\n")
        tag = ""
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            if line == "DONE":
                writer.write(f"{tag} OK done\r\n".encode())
                continue
            tag, _, command = line.partition(" ")
            self.received.append(command)
            known = [prefix for prefix in self._answers if command.startswith(prefix)]
            for answer in self._answers[known[0]] if known else ["{tag} OK done"]:
                if answer == "hang up":
                    return
                writer.write(answer.format(tag=tag).encode("latin-1") + b"\r\n")


@asynccontextmanager
async def scripted(
    answers: Mapping[str, Sequence[str]], capabilities: str = "AUTH=PLAIN SASL-IR IDLE"
) -> AsyncIterator[tuple[ScriptedImap, ImapConnection]]:
    script = ScriptedImap(answers, capabilities)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        async with open_imap("127.0.0.1", port, "none", None, PATIENCE) as connection:
            yield script, connection
        await script.ended.wait()
    finally:
        server.close()


LIST = ['* 1 FETCH (UID 5 RFC822.SIZE 9 INTERNALDATE " 1-Nov-2026 10:00:00 +0100")', "{tag} OK done"]


async def test_server_without_idle_is_polled() -> None:
    async with scripted({}, "AUTH=PLAIN") as (script, connection):
        await connection.wait_for_change(timedelta(seconds=0.01))
    assert script.received[1] == "NOOP"
    assert "IDLE" not in script.received


async def test_change_reported_between_commands_is_not_waited_for() -> None:
    answers = {"UID STORE": ["* 7 EXISTS", "{tag} OK done"], "UID FETCH": LIST}
    async with scripted(answers) as (script, connection):
        await connection.list_after(0)
        await connection.mark_seen(5)
        await connection.wait_for_change(timedelta(hours=1))
    assert "IDLE" not in script.received


async def test_change_reported_at_the_start_of_idle_ends_it() -> None:
    for answer in (["* 7 EXISTS", "+ idling"], ["+ idling", "* OK still here", "* 7 EXISTS"]):
        async with scripted({"IDLE": answer}) as (_, connection), asyncio.timeout(LIMIT):
            await connection.wait_for_change(timedelta(hours=1))


async def test_idle_is_renewed_although_the_server_shows_signs_of_life() -> None:
    async with scripted({"IDLE": ["+ idling", "* OK still here"]}) as (script, connection), asyncio.timeout(LIMIT):
        for _ in range(2):
            await connection.wait_for_change(timedelta(seconds=0.01))
        assert script.received.count("IDLE") == 2


async def test_last_mail_is_not_listed_again() -> None:
    async with scripted({"UID FETCH": LIST}) as (_, connection):
        assert await connection.list_after(5) == []
        assert [entry.uid for entry in await connection.list_after(4)] == [5]


async def test_mail_body_is_read_as_literal_or_quoted_string() -> None:
    body = 'a "quoted" (list) {3}\r\nabc)'
    literal = [f"* 1 FETCH (UID 5 BODY[] {{{len(body)}}}\r\n{body} FLAGS (\\Seen))", "{tag} OK done"]
    quoted = ['* 1 FETCH (FLAGS () BODY[] "a \\"b\\" c" UID 5)', "{tag} OK done"]
    gone = ["{tag} OK done"]
    for answer, expected in ((literal, body.encode()), (quoted, b'a "b" c'), (gone, None)):
        escaped = [line.replace("{3}", "{{3}}").replace(f"{{{len(body)}}}", f"{{{{{len(body)}}}}}") for line in answer]
        async with scripted({"UID FETCH": escaped}) as (_, connection):
            assert await connection.fetch(5, "BODY[]", PATIENCE) == expected


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("{tag} NO [AUTHENTICATIONFAILED] wrong", BadCredentials),
        ("{tag} NO wrong", BadCredentials),
        ("{tag} NO [UNAVAILABLE] later", Unreachable),
        ("* BYE overloaded", Unreachable),
        ("hang up", Unreachable),
    ],
)
async def test_refused_login_differs_from_an_outage(answer: str, error: type[Exception]) -> None:
    async with scripted({"AUTHENTICATE": [answer]}) as (_, connection):
        with pytest.raises(error):
            await connection.log_in("bot", password="p")


async def test_server_without_sasl_gets_a_quoted_login() -> None:
    async with scripted({}, "STARTTLS") as (script, connection):
        await connection.log_in("bot", password='a"b\\c')
    assert script.received[1] == r'LOGIN "bot" "a\"b\\c"'


async def test_commands_cannot_be_injected() -> None:
    async with scripted({}, "STARTTLS") as (script, connection):
        with pytest.raises(Rejected):
            await connection.log_in("bot\r\nA1 LOGOUT", password="p")
        with pytest.raises(Rejected):
            await connection.search_message("a\r\nb")
    assert len(script.received) <= 2


async def test_folder_with_another_alphabet_is_encoded() -> None:
    async with scripted({"SELECT": ["* OK [UIDVALIDITY 3] ok", "* OK [UIDNEXT 9] ok", "{tag} OK done"]}) as (
        script,
        connection,
    ):
        assert (await connection.select("Post/Entwürfe & 日本")).next_uid == 9
    assert script.received[1] == 'SELECT "Post/Entw&APw-rfe &- &ZeVnLA-"'


async def test_sent_folder_is_found_by_its_flag_or_name() -> None:
    marked = ['* LIST (\\HasNoChildren \\Sent) "/" "Gesendete Objekte"', "{tag} OK done"]
    named = ['* LIST () "." INBOX', '* LIST () "." INBOX.Sent', "{tag} OK done"]
    for answer, name in ((marked, "Gesendete Objekte"), (named, "INBOX.Sent"), (["{tag} OK done"], None)):
        async with scripted({"LIST": answer}) as (_, connection):
            assert await connection.find_sent_folder() == name
