"""Observers: what happens to keys, counted, traced and written down. Pass them to Once(observers=[…]).

Each is a callable that takes an Event. Keys appear as the first digits of their digest, never as text: a key may
be a person's document number.
"""
