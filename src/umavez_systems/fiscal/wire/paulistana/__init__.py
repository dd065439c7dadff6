"""São Paulo's own issuer as it is spoken to: RPS with two signatures, SOAP around escaped XML."""
