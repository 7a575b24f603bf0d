"""Rows of figures, each beside what it should be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    what: str
    figure: str
    goal: str = ""
    met: bool | None = None


def show(title: str, rows: list[Row]) -> None:
    width = max(len(row.what) for row in rows)
    print(f"\n## {title}\n")
    print(f"| {'':{width}} | measured | goal | |")
    print(f"|{'-' * (width + 2)}|---|---|---|")
    for row in rows:
        mark = {True: "ok", False: "MISSED", None: ""}[row.met]
        print(f"| {row.what:{width}} | {row.figure} | {row.goal} | {mark} |", flush=True)


def at_most(what: str, value: float, goal: float, unit: str, digits: int = 0) -> Row:
    return Row(
        what, f"{value:.{digits}f} {unit}", f"<= {goal:g} {unit}", round(value, digits) <= goal
    )


def at_least(what: str, value: float, goal: float, unit: str, digits: int = 0) -> Row:
    return Row(what, f"{value:.{digits}f} {unit}", f">= {goal:g} {unit}", value >= goal)
