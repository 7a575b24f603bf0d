"""Text: sentences and words."""
