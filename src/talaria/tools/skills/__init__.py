"""Skills: folders with a SKILL.md, in the open format."""
