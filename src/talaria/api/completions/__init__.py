"""Chat completions: the older of OpenAI's two ways to talk to a model."""
