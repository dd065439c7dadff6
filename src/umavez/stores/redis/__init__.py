"""The Redis store: one Lua script per verb over a connection of our own. Best effort, and said so."""
