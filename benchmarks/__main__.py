"""Measure, and print the tables.

python -m benchmarks                          everything, in about twenty minutes
python -m benchmarks first_audio capacity
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.tables import show

ALL = [
    "first_audio",
    "streamed_reply",
    "barge_in",
    "sharing",
    "capacity",
    "remote_first_audio",
    "remote_barge_in",
    "websocket",
    "serving",
    "rooms",
    "phone",
    "job_processes",
]

BESIDE_PEERS = ["piper", "piper_barge_in", "shared_engine"]
"""Those that run others' packages too, for which scripts/environment makes .venv-peers."""

PEERS = Path(__file__).parent.parent / ".venv-peers"


def _python(name: str) -> str:
    elsewhere = name in BESIDE_PEERS and Path(sys.prefix).name != PEERS.name
    return str(PEERS / "bin" / "python") if elsewhere else sys.executable


def main(names: list[str]) -> None:
    if len(names) != 1 or _python(names[0]) != sys.executable:
        # Each in a process of its own, so that none pays for what another left in memory.
        for name in names or ALL + BESIDE_PEERS:
            subprocess.run([_python(name), "-m", "benchmarks", name], check=True)
        return
    logging.getLogger("livekit").setLevel(logging.ERROR)
    print(f"\nLoad average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    module = importlib.import_module(f"benchmarks.{names[0]}")
    for title, rows in asyncio.run(module.run()).items():
        show(title, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
