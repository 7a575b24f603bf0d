"""VieNeu's own server, from its own wheel, around a model that is a tone.

What the text says decides what the model does:

    "Refuse ..."     raises before its first sound
    "Break ..."      raises after 320 ms, for which it takes as long
    anything else    160 ms of audio for every four characters, at once
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEEDED = ("vieneu", "apps", "fastapi", "uvicorn", "python_multipart")
"""Modules without which it doesn't run. Of vieneu's own dependencies it uses none."""

STEP = 7680
"""Samples of a step: 160 ms at 48 kHz."""

PRESETS: dict[str, dict[str, Any]] = {
    "Hải Đăng": {"description": "Nam · Bắc", "gender": "male", "featured": 5},
    "Mai Anh": {"description": "Nữ · Bắc", "gender": "female", "aliases": ["MA", "Mai"]},
}


def missing() -> list[str]:
    """The modules that aren't installed."""
    return [name for name in NEEDED if find_spec(name) is None]


@contextmanager
def vieneu_server(**settings: str) -> Iterator[str]:
    """Run the server on loopback; gives its address. Settings are VIENEU_'s: ``queue="1"``.

    ``collect="0"`` is ours: it never collects garbage, unless asked to by ``POST /collect``.
    """
    others = {name: value for name, value in os.environ.items() if not name.startswith("VIENEU_")}
    own = {f"VIENEU_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.real.vieneu_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=others | own,
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the server didn't start"
            yield address
        finally:
            process.kill()


class ToneModel:
    """What ``vieneu.Vieneu`` returns, as far as the server uses it."""

    backend = "onnx"

    def __init__(self, **_: object) -> None:
        self._preset_voices = dict(PRESETS)
        self._aliases = {alias: k for k, v in PRESETS.items() for alias in v.get("aliases", ())}

    def resolve_voice_name(self, name: str) -> str | None:
        return name if name in self._preset_voices else self._aliases.get(name)

    def add_voice(self, name: str, path: str, *, denoise: bool, description: str) -> None:
        if not Path(path).read_bytes().startswith(b"RIFF"):
            raise ValueError("no audio in it")
        self._preset_voices[name] = {"description": description}

    def infer_stream(self, text: str, **_: object) -> Generator[NDArray[np.float32], None, None]:
        if text.startswith("Refuse"):
            raise RuntimeError("out of memory")
        for step in range(-(-len(text) // 4)):
            if text.startswith("Break"):
                time.sleep(0.16)
                if step == 2:
                    raise RuntimeError("out of memory")
            t = np.arange(STEP * step, STEP * (step + 1)) / 48_000
            yield (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


def _main() -> None:
    # Not by import statements, which a type checker can't follow where they aren't installed.
    vieneu: Any = importlib.import_module("vieneu")
    uvicorn: Any = importlib.import_module("uvicorn")
    vieneu.Vieneu = ToneModel
    app: Any = importlib.import_module("apps.openai_speech").app
    app.add_api_route("/collect", gc.collect, methods=["POST"])
    if os.environ.get("VIENEU_COLLECT") == "0":
        gc.disable()
    listening = socket.create_server(("127.0.0.1", 0))
    # Who connects from now on waits in the socket's queue until the server has started.
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    _main()
