"""After the payer's analysis: demonstrativos, glosas by item, recursos."""
