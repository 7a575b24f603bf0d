"""One reader of English for all tests: loading it is what takes the time."""

from __future__ import annotations

import pytest
from hibari.g2p import G2P

from tts_plugins.phonemes.english import load_reader


@pytest.fixture(scope="session")
def g2p() -> G2P:
    return load_reader(british=False)
