"""`/v1/sessions`: the conversations there are, whichever door they began at."""
