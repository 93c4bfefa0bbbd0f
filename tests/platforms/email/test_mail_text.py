"""The text of a mail: quotes, signatures, wrapped lines, HTML."""

from email.message import EmailMessage

import pytest

from talaria.platforms.email.incoming import html_to_text, parse_mail, read_text, strip_quotes


def mail_of(text: str = "", html: str = "", subject: str = "Re: Trip") -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = subject
    if text or not html:
        mail.set_content(text)
    if html:
        (mail.add_alternative if text else mail.set_content)(html, subtype="html")
    return mail


@pytest.mark.parametrize(
    "quote",
    [
        "On Mon, 16 Nov 2026 at 10:00, Talaria <bot@example.org> wrote:\n> Which day?\n> Monday?",
        "On Mon, 16 Nov 2026 at 10:00, Talaria\n<bot@example.org> wrote:\n\n> Which day?",
        "Am 16.11.26 um 10:00 schrieb Talaria:\n> Which day?",
        "Le lun. 16 nov. 2026 à 10:00, Talaria <bot@example.org> a écrit :\n> Which day?",
        "El 16/11/2026 a las 10:00, Talaria escribió:\n>> Which day?",
        "2026年11月16日(月) 10:00 Talaria <bot@example.org>:\n> Which day?",
        "> Which day?\n> Monday?",
        "-----Original Message-----\nFrom: Talaria\nWhich day?",
        "________________________________\nFrom: Talaria <bot@example.org>\nSent: Monday\nSubject: Trip\n\nWhich?",
        "From: Talaria <bot@example.org>\nSent: Monday, 16 November 2026\nTo: Alice\nSubject: Trip\n\nWhich day?",
        "*Von:* Talaria <bot@example.org>\n*Gesendet:* Montag\n*An:* Alice\n*Betreff:* Trip\n\nWhich day?",
    ],
)
@pytest.mark.parametrize("gap", ["\n\n", "\n"])
def test_quoted_mail_at_the_end_is_stripped(quote: str, gap: str) -> None:
    assert strip_quotes(f"Tuesday, please: not earlier.{gap}{quote}\n").strip() == "Tuesday, please: not earlier."


def test_quotes_between_answers_remain() -> None:
    text = "> Which day?\nTuesday.\n> Which train?\nThe first one."
    assert strip_quotes(text) == text


def test_list_in_a_reply_remains_when_a_quote_follows() -> None:
    assert strip_quotes("Buy these:\n- milk\n- 2 eggs\n\n> What do we need?").strip() == "Buy these:\n- milk\n- 2 eggs"


def test_forwarded_mail_is_not_stripped() -> None:
    text = (
        "Please sum this up.\n\n---------- Forwarded message ---------\nFrom: Bob\nDate: today\nSubject: x\n\nThe news."
    )
    assert "The news." in read_text(mail_of(text, subject="Fwd: News"), is_reply=True)
    assert "The news." in read_text(mail_of(text, subject="News"), is_reply=False)


@pytest.mark.parametrize(
    "signature", ["-- \nAlice\n+49 1234", "Sent from my iPhone", "Von meinem iPhone gesendet", "Get Outlook for iOS"]
)
def test_signature_is_stripped(signature: str) -> None:
    assert read_text(mail_of(f"/approve\n\n{signature}\n"), is_reply=True) == "/approve"


def test_wrapped_lines_of_flowed_text_are_joined() -> None:
    head = b"Subject: x\nContent-Type: text/plain; charset=utf-8; format=flowed\n\n"
    assert read_text(parse_mail(head + b"One long \nline.\n\n-- \nAlice\n"), is_reply=False) == "One long line."


def test_plain_text_is_preferred_over_html() -> None:
    assert read_text(mail_of("plain", "<p>formatted</p>"), is_reply=False) == "plain"


def test_html_is_read_where_there_is_no_plain_text() -> None:
    html = (
        "<html><head><title>no</title><style>p{}</style></head><body><p>Hello&nbsp;<b>there</b>,</p><ul><li>one"
        "<li>two</ul><div>See <a href='https://example.org/x'>this</a><br>or <a href='https://a.b'>https://a.b/</a></div>"
        "<p style='display: none'>secret</p><div class='gmail_quote'>On Monday ...<blockquote>old</blockquote></div>"
    )
    expected = "Hello there,\n\n- one\n\n- two\n\nSee this (https://example.org/x)\nor https://a.b/"
    assert read_text(mail_of(html=html), is_reply=True) == expected


def test_deeply_nested_html_is_read() -> None:
    assert html_to_text("<div>" * 400_000 + "x", strips_quotes=True) == "x"  # minutes, if it were parsed
    assert html_to_text("<b>" * 100 + "x", strips_quotes=True) == "x"


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("iso-8859-1", b"caf\xe9", "café"),
        ("utf-8", b"caf\xe9", "caf\ufffd"),
        ("unknown-x", "café".encode(), "café"),
        ("utf-16", b"\xff", "\ufffd"),
    ],
)
def test_any_encoding_is_read(charset: str, data: bytes, text: str) -> None:
    head = f"Subject: x\nContent-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: 8bit\n\n".encode()
    assert read_text(parse_mail(head + data), is_reply=False) == text
