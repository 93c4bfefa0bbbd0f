"""The agent's memory of its work and its person, in two small files."""
