"""The HTTP service: documents in, answers out, and the dialects that other programs speak."""
