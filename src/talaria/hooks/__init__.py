"""Hooks: what the owner wants to happen when something happens, run beside everything else."""
