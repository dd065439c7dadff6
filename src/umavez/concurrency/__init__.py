"""Where waiting really differs between threads and tasks: heartbeats, group commit, locks, forks."""

from umavez.concurrency.threads import ThreadPool

__all__ = ["ThreadPool"]
