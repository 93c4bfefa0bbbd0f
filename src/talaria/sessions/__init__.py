"""One conversation at a time: its log, its turns, what they may spend and who answers for it."""
