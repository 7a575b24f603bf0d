"""Text to the sounds that a voice was trained on, each word remembering which are its own."""
