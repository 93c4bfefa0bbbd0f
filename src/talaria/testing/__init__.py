"""Published fakes and helpers for the tests of ours and of plug-in authors."""
