"""Values as texts that every store can keep: canonical, encoded, fingerprinted, readable."""
