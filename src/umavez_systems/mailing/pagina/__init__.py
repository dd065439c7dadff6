"""The page under /mailing."""
