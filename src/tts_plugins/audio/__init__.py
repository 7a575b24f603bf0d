"""Samples: encodings, rates, files."""
