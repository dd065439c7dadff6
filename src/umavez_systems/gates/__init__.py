"""What stands between the net and the routes: connections, who may come in, addresses that can be read."""
