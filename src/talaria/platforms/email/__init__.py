"""E-mail: receives over IMAP, answers over SMTP; a mail thread is a conversation."""
