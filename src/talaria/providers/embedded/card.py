"""What the embedded model is called, and what it can do."""

PROVIDER = "embedded"
MODEL = "smollm2-135m-instruct"
LIMITS = (
    "You are using a tiny built-in model: English only, no tools, short memory, often wrong."
    " Run `talaria setup` to connect a real one."
)
