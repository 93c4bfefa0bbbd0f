"""Construction of sessions: models, tools, prompt, policies, delegation and goals."""
