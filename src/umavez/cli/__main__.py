"""`python -m umavez.cli` is the `umavez` command."""

from umavez.cli import main

main()
