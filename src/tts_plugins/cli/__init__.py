"""The command ``tts-plugins``.

This door imports neither typer nor rich, so that it opens without them and can say what is
missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tts_plugins.errors import MissingDependencyError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, by default with the arguments of this process, and exit."""
    try:
        from tts_plugins.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit(str(MissingDependencyError("cli")))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
