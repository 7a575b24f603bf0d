"""One process that holds the engines of a host, and answers the clients people already have."""

from tts_plugins.server.app import create_app

__all__ = ["create_app"]
