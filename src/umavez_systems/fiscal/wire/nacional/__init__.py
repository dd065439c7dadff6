"""SEFIN Nacional as it is spoken to: DPS and events, JSON around packed XML, answers read defensively."""
