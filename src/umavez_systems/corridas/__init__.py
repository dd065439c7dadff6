"""Corridas: rides with idempotent confirmation outside the fence (seed 001)."""
