"""`/v1/responses`: OpenAI's Responses protocol, complete, streamed or in the background."""
