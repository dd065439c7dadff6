"""Acts: what emitting, cancelling, correcting and voiding write down before, after and instead of an answer."""
