"""The HTTP contract without any server: keys, fingerprints, answers, problems, routes."""
