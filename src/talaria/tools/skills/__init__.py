"""What the agent has learnt to do: folders with a SKILL.md, in the open format."""
