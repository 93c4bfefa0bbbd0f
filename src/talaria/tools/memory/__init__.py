"""What the agent keeps in mind about its work and its person, in two small files."""
