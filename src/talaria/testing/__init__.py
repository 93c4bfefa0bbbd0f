"""Published fakes and contract suites."""
