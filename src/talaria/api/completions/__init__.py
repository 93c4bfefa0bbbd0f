"""Chat completions, the older of OpenAI's two protocols."""
