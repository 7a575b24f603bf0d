"""No test finds, or leaves, a voice in the home of whoever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tts_plugins.library import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def voices_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where engines keep what they learn in this test."""
    folder = tmp_path_factory.getbasetemp() / "voices"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder))
        yield folder
