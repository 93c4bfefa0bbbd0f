"""The event stream of an open session: order, late subscribers, failing subscribers."""

import logging

import pytest

from talaria.core.events import Noticed, TextAdded, ToolProgressed, TurnAnswered, TurnBegan, TurnEvent
from talaria.core.ids import TurnId
from talaria.runtime.turn_environment import TurnEvents

BEGAN = TurnBegan(TurnId("t1"))


def test_subscribers_get_every_event_in_order() -> None:
    events, first, second = TurnEvents(), list[TurnEvent](), list[TurnEvent]()
    events.subscribe(first.append)
    events.publish(BEGAN)
    events.subscribe(second.append)
    events.publish(TextAdded("hello"))
    assert first == [BEGAN, TextAdded("hello")]
    assert second == [TextAdded("hello")]


def test_a_subscription_can_be_ended_while_an_event_is_published() -> None:
    events, seen = TurnEvents(), list[TurnEvent]()

    def once(event: TurnEvent) -> None:
        seen.append(event)
        end()

    end = events.subscribe(once)
    events.publish(BEGAN)
    events.publish(TextAdded("hello"))
    assert seen == [BEGAN]


def test_a_failing_subscriber_is_logged_and_the_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    events, seen = TurnEvents(), list[TurnEvent]()

    def fail(event: TurnEvent) -> None:
        raise ValueError("no")

    events.subscribe(fail)
    events.subscribe(seen.append)
    with caplog.at_level(logging.ERROR):
        events.publish(BEGAN)
    assert seen == [BEGAN]
    assert "a subscriber failed on TurnBegan" in caplog.text


def test_the_running_turn_can_be_replayed_until_it_ends() -> None:
    events = TurnEvents()
    events.publish(Noticed("between turns"))
    assert events.turn == []
    events.publish(BEGAN)
    turn = events.turn
    events.publish(ToolProgressed("c1", "much output"))
    events.publish(TextAdded("hello"))
    assert events.turn == [BEGAN, TextAdded("hello")]
    events.publish(TurnAnswered("hello"))
    assert turn == [BEGAN, TextAdded("hello"), TurnAnswered("hello")]
    assert events.turn == []


def test_a_turn_that_was_cut_off_is_replaced_by_the_next_one() -> None:
    events = TurnEvents()
    events.publish(BEGAN)
    events.publish(TextAdded("hel"))
    events.publish(BEGAN)
    assert events.turn == [BEGAN]
