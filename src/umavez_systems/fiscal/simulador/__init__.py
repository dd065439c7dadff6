"""Simulated authorities: a process of their own, with TLS, state on disk, and every way of failing."""
