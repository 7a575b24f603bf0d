"""One voice-agent framework per file, each its only importer."""
