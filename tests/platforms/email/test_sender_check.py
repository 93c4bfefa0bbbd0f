"""Verified senders: only the report of the receiving server counts."""

from email import message_from_string, policy

import pytest

from talaria.platforms.email.sender_check import UnverifiedSender, verify_sender

MX = "mx.example.org"
ALICE = "From: Alice <alice@example.com>\n"


def check(headers: str, *trusted: str, received_above: int | None = None) -> str:
    mail = message_from_string(f"{headers}\nHello.\n", policy=policy.default)
    return verify_sender(mail, trusted or (MX,), received_above)[0]


GMAIL = """mx.google.com;
       dkim=pass header.i=@example.com header.s=s1 header.b=a1B2;
       spf=pass (google.com: domain of alice@example.com designates 192.0.2.1 as permitted sender) smtp.mailfrom=x@y.z;
       dmarc=pass (p=REJECT sp=REJECT dis=NONE) header.from=example.com"""
OUTLOOK = """spf=pass (sender IP is 192.0.2.1)
 smtp.mailfrom=example.com; dkim=pass (signature was verified)
 header.d=example.com;dmarc=pass action=none
 header.from=example.com;compauth=pass reason=100"""


@pytest.mark.parametrize(
    ("server", "report"),
    [
        ("mx.google.com", GMAIL),
        ("none", OUTLOOK),
        ("*.messagingengine.com", "mx5.messagingengine.com;\n dmarc=pass (p=none,x=no) header.from=example.com"),
        (MX, f"{MX}; dkim=pass (2048-bit key; unprotected) header.d=example.com header.i=@example.com"),
        (MX, f'{MX} 1; dkim=pass reason="2048-bit key; insecure" header.d=example.com'),
        (MX, f"{MX};\n\tspf=pass smtp.mailfrom=bounce@example.com"),
        (MX, f"{MX};\n\tauth=pass (PLAIN) smtp.auth=alice@example.com"),
        (MX.upper(), f"{MX.upper()}; DMARC=Pass header.from=Example.com"),
    ],
    ids=["gmail", "outlook", "fastmail", "opendkim", "quoted reason", "spf", "exim login", "upper case"],
)
def test_report_of_a_trusted_server_verifies_the_sender(server: str, report: str) -> None:
    assert check(f"Authentication-Results: {report}\n{ALICE}", server.lower()) == "alice@example.com"


@pytest.mark.parametrize(
    "report",
    [
        f"{MX}; none",
        f"{MX}",
        f"{MX}; dmarc=fail header.from=example.com; dkim=pass header.d=example.com",
        f"{MX}; dmarc=pass header.from=evil.example",
        f"{MX}; dkim=pass header.d=evil.example; spf=pass smtp.mailfrom=evil.example",
        f"{MX}; dkim=fail header.d=example.com; spf=softfail smtp.mailfrom=example.com",
        f"{MX}; dkim=pass header.d=com",
        f"{MX}; dkim=pass header.d=free.example.com",  # anyone may have a name below a domain
        f"{MX}; spf=pass smtp.helo=example.com",
        f"{MX}; auth=pass smtp.auth=mallory@example.com",
        "mx.evil.example; dmarc=pass header.from=example.com",
        "dmarc=pass header.from=example.com",
        f"evil-{MX}; dmarc=pass header.from=example.com",
    ],
)
def test_report_without_a_matching_pass_is_refused(report: str) -> None:
    with pytest.raises(UnverifiedSender):
        check(f"Authentication-Results: {report}\n{ALICE}")


@pytest.mark.parametrize(
    "report",
    [
        f'{MX}; spf=pass smtp.mailfrom="x; dmarc=pass header.from=example.com"@evil.example',
        f'{MX}; spf=pass smtp.mailfrom="x dkim=pass header.d=example.com"@evil.example',
        f'{MX}; spf=pass (domain of "a); dkim=pass header.d=example.com ("@evil.example) smtp.mailfrom=evil.example',
        f"{MX}; spf=fail (dmarc=pass header.from=example.com; dkim=pass header.d=example.com) smtp.mailfrom=x",
        f'{MX}; spf=fail smtp.mailfrom="unclosed dkim=pass header.d=example.com',
        f"{MX}; spf=fail (unclosed dkim=pass header.d=example.com",
    ],
)
def test_text_of_the_sender_inside_a_report_is_not_a_result(report: str) -> None:
    with pytest.raises(UnverifiedSender):
        check(f"Authentication-Results: {report}\n{ALICE}")


def test_forged_report_below_the_real_one_is_ignored() -> None:
    forged = f"Authentication-Results: {MX}; dmarc=pass header.from=example.com\n"
    for real in ("spf=fail smtp.mailfrom=evil.example", "none", "dkim=pass header.d=evil.example"):
        with pytest.raises(UnverifiedSender):
            check(f"Authentication-Results: {MX}; {real}\nReceived: from evil\n{forged}{ALICE}")


def test_reports_below_the_report_of_another_server_are_ignored() -> None:
    forged = f"Authentication-Results: {MX}; dmarc=pass header.from=example.com\n"
    with pytest.raises(UnverifiedSender, match="reports no check"):
        check(f"Authentication-Results: relay.example; none\n{forged}{ALICE}")


def test_report_below_the_configured_depth_is_refused() -> None:
    report = f"Authentication-Results: {MX}; dmarc=pass header.from=example.com\n"
    assert check(f"Received: by lmtp\n{report}{ALICE}", received_above=1) == "alice@example.com"
    with pytest.raises(UnverifiedSender):
        check(f"Received: by lmtp\nReceived: by {MX}\n{report}{ALICE}", received_above=1)


def test_reports_of_several_trusted_servers_are_joined() -> None:
    reports = (
        "Authentication-Results: bimi.icloud.com; bimi=none\n"
        "Authentication-Results: dmarc.icloud.com; dmarc=pass header.from=example.com\n"
    )
    assert check(reports + ALICE, "dmarc.icloud.com", "bimi.icloud.com") == "alice@example.com"


@pytest.mark.parametrize(
    "sender",
    [
        "From: alice@example.com\nFrom: mallory@evil.example\n",
        "From: alice@example.com, mallory@evil.example\n",
        "From: Alice\n",
        "From: \n",
        "Sender: alice@example.com\n",
    ],
)
def test_mail_without_exactly_one_sender_is_refused(sender: str) -> None:
    with pytest.raises(UnverifiedSender):
        check(f"Authentication-Results: {MX}; dmarc=pass header.from=example.com\n{sender}")


def test_address_in_the_name_is_not_the_sender() -> None:
    report = f"Authentication-Results: {MX}; dmarc=pass header.from=evil.example\n"
    assert check(f'{report}From: "alice@example.com" <mallory@evil.example>\n') == "mallory@evil.example"
