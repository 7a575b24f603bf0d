"""Measure, and print the table.

python -m benchmarks                      everything, about five minutes
python -m benchmarks first_audio capacity
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys

from benchmarks.tables import show

ALL = ["first_audio", "streamed_reply", "barge_in", "sharing", "capacity"]


def main(names: list[str]) -> None:
    logging.getLogger("livekit").setLevel(logging.ERROR)
    print(f"Load average before: {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs")
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        for title, rows in asyncio.run(module.run()).items():
            show(title, rows)


if __name__ == "__main__":
    main(sys.argv[1:] or ALL)
