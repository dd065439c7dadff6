"""Processos: idempotent operations of a hospital's revenue cycle, run by a BPMN engine (seed 003)."""
