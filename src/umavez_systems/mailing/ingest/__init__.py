"""Ingest: an uploaded list becomes entries."""
