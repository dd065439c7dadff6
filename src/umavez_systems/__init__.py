"""The systems that stand on umavez, and the server that carries them. They import its public names only."""
