"""Clientes and propostas: idempotent creation, submission and what follows (seed 000)."""
