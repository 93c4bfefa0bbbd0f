"""Translation of mails to updates and of messages to mails, without a server."""

from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import pytest
from tests.platforms.email.far_side import compose

from talaria.contracts.platform import Content, Incoming
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected
from talaria.platforms.email.incoming import (
    IgnoredMail,
    MailThread,
    make_thread_id,
    parse_mail,
    read_mail,
)
from talaria.platforms.email.outgoing import make_mail, make_message_id
from talaria.platforms.email.settings import EmailSettings, read_settings

BOT, ALICE = "bot@example.org", "alice@example.com"
SETTINGS = EmailSettings(address=BOT, authserv_id="mx.example.org", password="x")
NOW = datetime(2026, 11, 16, 10, tzinfo=UTC)
REPORT = b"Authentication-Results: mx.example.org; dmarc=pass header.from=example.com\r\n"


def read(mail: EmailMessage) -> Incoming:
    return read_mail(REPORT + mail.as_bytes(), NOW, "1/2", SETTINGS).incoming


def make(content: Content, thread: MailThread | None = None, to: str = ALICE, thread_id: str = "") -> EmailMessage:
    address = Address("email", to, "private", thread_id)
    message_id = make_message_id("key", thread_id, "example.org")
    return parse_mail(make_mail(address, content, [], thread, SETTINGS, message_id=message_id, at=NOW))


def test_first_mail_starts_a_thread_and_has_its_subject() -> None:
    mail = compose(ALICE, BOT, "Which trains run?", "Trip to Rome")
    found = read(mail)
    assert found.text == "Trip to Rome\n\nWhich trains run?"
    assert found.address == Address("email", ALICE, "private", make_thread_id(str(mail["Message-ID"])[1:-1]))
    assert (found.sender.id, found.sender.name, found.chat_name) == (ALICE, "Alice", "Trip to Rome")


def test_command_is_recognised_below_a_subject() -> None:
    assert read(compose(ALICE, BOT, "/status", "Hello")).text == "/status"


@pytest.mark.parametrize("header", ["References", "In_Reply_To"])
def test_reply_to_our_mail_finds_its_thread_without_the_root(header: str) -> None:
    ours = make_message_id("some key", "0123456789abcdef0123", "example.org")
    found = read(compose(ALICE, BOT, "Yes.", "Re: Trip", **{header: f"<{ours}>"}))
    assert (found.address.thread_id, found.text, found.reply_to) == ("0123456789abcdef0123", "Yes.", ours)


def test_reply_to_a_mail_outside_threads_goes_to_the_chat() -> None:
    ours = make_message_id("cron:1", "", "example.org")
    assert read(compose(ALICE, BOT, "Do it.", In_Reply_To=f"<{ours}>")).address == Address("email", ALICE)


def test_first_reference_determines_the_thread() -> None:
    found = read(compose(ALICE, BOT, "Yes.", References="<root@a.example> <second@b.example>"))
    assert found.address.thread_id == make_thread_id("root@a.example")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Auto-Submitted", "auto-replied"),
        ("Auto-Submitted", "auto-generated; owner-email=x"),
        ("Precedence", "Bulk"),
        ("Precedence", "auto_reply"),
        ("List-Id", "<news.example.com>"),
        ("List-Unsubscribe", "<https://example.com>"),
        ("X-Autoreply", "yes"),
        ("Return-Path", "<>"),
        ("From", "Mail Delivery <MAILER-DAEMON@example.com>"),
        ("From", "no-reply@example.com"),
        ("From", BOT),
    ],
)
def test_automatic_mail_is_ignored(header: str, value: str) -> None:
    with pytest.raises(IgnoredMail):
        read(compose(ALICE, BOT, "I'm on holiday.", **{header.replace("-", "_"): value}))


def test_delivery_report_is_ignored() -> None:
    mail = compose(ALICE, BOT, "Not delivered.")
    mail.replace_header("Content-Type", "multipart/report; report-type=delivery-status; boundary=x")
    with pytest.raises(IgnoredMail, match="bounce"):
        read(mail)


def test_mail_marked_as_not_automatic_is_received() -> None:
    assert read(compose(ALICE, BOT, "Hi.", Auto_Submitted="no")).addressed


def test_own_mail_is_recognised_as_automatic() -> None:
    with pytest.raises(IgnoredMail, match="automatically"):
        read(make(Content(text="Hello."), to=ALICE))


def test_copy_is_not_addressed_to_us() -> None:
    assert not read(compose(ALICE, "bob@example.com", "Hi Bob.", Cc=BOT)).addressed
    assert read(compose(ALICE, f"bob@example.com, Bot <{BOT.upper()}>", "Hi both.")).addressed
    assert read(compose(ALICE, "undisclosed-recipients:;", "Hi.")).addressed


def test_external_id_depends_on_message_id_and_sender() -> None:
    first = compose(ALICE, BOT, "Hi.", Message_ID="<same@example.com>")
    other = compose("bob@example.com", BOT, "Hi.", Message_ID="<same@example.com>")
    assert read(first).external_id == read(first).external_id != read(other).external_id
    assert read(compose(ALICE, BOT, "Hi.", Message_ID="")).message_id


def test_files_and_pictures_are_listed_and_signatures_are_not() -> None:
    mail = compose(ALICE, BOT, "See.")
    mail.add_attachment(b"1,2", maintype="text", subtype="csv", filename="a.csv")
    mail.add_attachment(b"png", maintype="image", subtype="png", filename="b.png")
    mail.add_attachment(b"sig", maintype="application", subtype="pgp-signature", filename="s.asc")
    mail.add_attachment(compose(ALICE, "x@example.com", "inner", "Inner"))
    found = [(one.kind, one.name, one.size) for one in read(mail).attachments]
    assert found[:2] == [("document", "a.csv", 3), ("picture", "b.png", 3)]
    assert [(kind, name) for kind, name, _ in found[2:]] == [("document", "mail.eml")]


def test_answer_continues_the_thread_of_its_question() -> None:
    thread = MailThread("Trip to Rome", ("root@a.example", "second@b.example"))
    mail = make(Content(text="At **nine**.", reply_to="second@b.example"), thread, thread_id="0" * 20)
    assert mail["Subject"] == "Re: Trip to Rome"
    assert mail["In-Reply-To"] == "<second@b.example>"
    assert mail["References"] == "<root@a.example> <second@b.example>"
    assert mail["Auto-Submitted"] == "auto-replied"
    html = mail.get_body(("html",))
    assert html is not None
    assert "<strong>nine</strong>" in html.get_content()


def test_new_mail_has_a_subject_from_its_first_line() -> None:
    mail = make(Content(text="\n# The **backup** is done\n\nAll 12 folders."))
    assert mail["Subject"] == "The backup is done"
    assert "References" not in mail
    assert len(str(make(Content(text="word " * 100))["Subject"])) <= 70


def test_html_of_a_reply_loads_nothing_and_runs_nothing() -> None:
    text = "**x** <script>alert(1)</script> ![track](https://evil.example/p.png) [go](javascript:alert(1))"
    body = make(Content(text=text)).get_body(("html",))
    assert body is not None
    html = body.get_content()
    assert not [tag for tag in ("<script", "<img", 'href="javascript') if tag in html]


def test_plain_text_is_sent_without_html() -> None:
    assert make(Content(text="Just a line.\nAnd another.")).get_content_type() == "text/plain"


def test_headers_cannot_be_injected() -> None:
    mail = make(Content(text="x", reply_to="a@b"), MailThread("Hi\r\nBcc: evil@example.net", ("a@b",)))
    assert "Bcc" not in mail


@pytest.mark.parametrize("to", ["alice", "alice@", "a b@example.com", "alice@example.com, bob@example.com", "a\n@b.c"])
def test_invalid_recipient_is_refused(to: str) -> None:
    with pytest.raises(Rejected):
        make(Content(text="x"), to=to)


GMAIL = {"address": "bot@gmail.com"}
OWN: dict[str, Any] = {
    "address": "bot@example.org",
    "imap_host": "i.example",
    "smtp_host": "s.example",
    "authserv_id": "mx",
}


@pytest.mark.parametrize(
    ("options", "secrets", "problem"),
    [
        ({}, {"EMAIL_PASSWORD": "x"}, "Set address"),
        (GMAIL, {}, "EMAIL_PASSWORD or EMAIL_REFRESH_TOKEN"),
        (GMAIL, {"EMAIL_REFRESH_TOKEN": "x"}, "client_id"),
        ({"address": "bot@example.org"}, {"EMAIL_PASSWORD": "x"}, "imap_host and smtp_host"),
        ({**OWN, "authserv_id": ""}, {"EMAIL_PASSWORD": "x"}, "Authentication-Results"),
        ({**OWN, "imap_security": "none"}, {"EMAIL_PASSWORD": "x"}, "not on this computer"),
        ({**OWN, "idle": "PT30M"}, {"EMAIL_PASSWORD": "x"}, "29 minutes"),
        ({**OWN, "provider": "example.net"}, {"EMAIL_PASSWORD": "x"}, "must be one of gmail.com"),
        ({**OWN, "imap_hots": "x"}, {"EMAIL_PASSWORD": "x"}, "unknown field `imap_hots`"),
    ],
)
def test_invalid_settings_are_named(options: dict[str, str], secrets: dict[str, str], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        read_settings("email", options, lambda name: secrets.get(name, ""))


def test_provider_sets_the_servers_for_its_own_and_custom_domains() -> None:
    for options in (GMAIL, {"address": "bot@example.org", "provider": "gmail.com"}):
        found = read_settings("email", options, lambda name: "x" if name == "EMAIL_PASSWORD" else "")
        assert (found.imap_host, found.smtp_port, found.authserv_ids) == ("imap.gmail.com", 465, ("mx.google.com",))
