"""`/v1/sessions`: the sessions of all surfaces."""
