"""What was counted minute by minute, as drawings that need no script."""
