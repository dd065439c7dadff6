"""The MariaDB store: PyMySQL for threads, asyncmy for tasks, binary digest keys."""
