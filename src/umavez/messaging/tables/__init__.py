"""The tables of messages: what is appended, claimed, tried again and cleaned up."""
