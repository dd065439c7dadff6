"""What several people do about one record: one proposes and another agrees; somebody looks after it."""
