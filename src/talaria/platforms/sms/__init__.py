"""SMS and MMS over a phone number at Twilio."""
