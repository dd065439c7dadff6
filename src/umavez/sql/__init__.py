"""One small way to run statements on whatever SQL connection is at hand."""
