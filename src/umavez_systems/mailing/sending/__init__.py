"""Sending: what a worker does to a mailing that it holds."""
