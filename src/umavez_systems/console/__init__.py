"""The console of the server: at /console, with a panel of each system."""
