"""Events of other programs: signed posts that become turns, and replies that are posted back, signed."""
