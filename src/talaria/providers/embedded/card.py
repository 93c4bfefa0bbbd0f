"""What the embedded model is called, and what it can do."""

PROVIDER = "embedded"
MODEL = "smollm2-135m-instruct"
LIMITS = (
    "A small model inside Talaria answers (SmolLM2, 135 million parameters). It can chat a little, in English; it"
    " uses no tools, forgets what was said a few pages ago and is often wrong. With a key (`talaria config set"
    " OPENAI_API_KEY -`; other providers work the same way) or a local server such as Ollama, a capable model answers."
)
