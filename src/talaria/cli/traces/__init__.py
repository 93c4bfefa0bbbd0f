"""`talaria trace`: reading what was stored of turns, and showing it as a tree and as a picture."""
