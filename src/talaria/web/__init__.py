"""Web app: sign-in, conversations, chat and live watching in the browser, on the same server as the API."""
