"""The Chat Completions protocol of OpenAI, which most other providers and local servers speak too."""
