"""Mailing: a list uploaded once, each person mailed once, and nothing guessed (seed 002)."""
