"""Checkpoints of workspaces, in Git repositories outside of them."""
