"""Messages of every kind, valid and hostile, made from the tables of messages."""
