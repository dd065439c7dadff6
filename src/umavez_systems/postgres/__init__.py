"""PostgreSQL as the systems speak to it: how long a connection waits, and how few round trips a statement takes."""
