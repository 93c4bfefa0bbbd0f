"""`talaria trace`: timelines of turns."""
