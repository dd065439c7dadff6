"""Measurements. `python -m bench` lists and runs them; each prints a table and keeps JSON under bench/results."""
