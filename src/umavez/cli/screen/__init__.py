"""What commands print: tables, a key's story, and what is looked at again and again."""
