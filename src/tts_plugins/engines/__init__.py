"""Engines that run in this process, one file or folder each: the only importers of models."""
