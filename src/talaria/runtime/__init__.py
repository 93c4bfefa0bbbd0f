"""Session runtime: runners, leases, inboxes, the agent cache, delegation and the live feed."""
