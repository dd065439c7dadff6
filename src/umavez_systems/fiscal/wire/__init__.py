"""The wire: XML by the official schemas, signed, SOAP over mutual TLS, answers read defensively."""
