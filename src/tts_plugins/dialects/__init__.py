"""Somebody's speech API per file: both ends, without I/O."""
