"""Voices for voice agents: one engine contract, and adapters for the frameworks that speak."""
