"""Processes that go on without the conversation that started them."""
