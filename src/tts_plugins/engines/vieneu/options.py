"""What a request may ask of VieNeu, and within which bounds."""

from __future__ import annotations

from tts_plugins.options import Bounds, Table

TURBO: Table = {
    "temperature": Bounds(0, 2),
    "top_k": Bounds(0, 1024, whole=True),
    "top_p": Bounds(0.01, 1),
    "repetition_penalty": Bounds(1, 2),
    "max_chars": Bounds(40, 512, whole=True),
}
"""As ``V3TurboVieNeuTTS.infer_stream`` calls them (vieneu 3.8.3). A temperature of 0 always takes
what is likeliest, a ``top_k`` of 0 and a ``top_p`` of 1 leave everything to choose from."""

NANO: Table = {
    "steps": Bounds(1, 64, whole=True),
    "cfg": Bounds(0, 10),
    "sway": Bounds(-1, 1),
    "max_chars": Bounds(40, 256, whole=True),
}
"""As ``V3NanoVieNeuTTS.infer_stream`` calls them: half the steps take half the time."""
