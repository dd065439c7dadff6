"""The payer's portal: how it is spoken to, and a simulator of it to run against."""
