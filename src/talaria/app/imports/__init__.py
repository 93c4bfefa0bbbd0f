"""Import of another agent's home into a profile."""
