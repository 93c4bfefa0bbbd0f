"""Each chat gets one notice per outage of the store."""

from talaria.core.addresses import Address
from talaria.gateway.receiver import OutageNotices


def test_each_chat_is_notified_once_until_the_outage_is_over() -> None:
    outage = OutageNotices()
    home, group = Address("loopback", "ann"), Address("loopback", "family", "group", user_id="ann")
    assert [outage.claim(home), outage.claim(group), outage.claim(home)] == [True, True, False]
    assert not outage.claim(Address("loopback", "family", "group", user_id="ben"))
    assert outage.claim(Address("loopback", "family", "thread", thread_id="7"))
    outage.end()
    assert outage.claim(home)
