"""Our steps make what the package's own threads make, and leave everything else in peace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.pocket.tiny import NEVER, recording, tiny
from tts_plugins.engines.pocket import loading, speaker, states
from tts_plugins.types import Samples

TEXTS = ["Hello there.", "this is longer than four words", "A; b: c - d, e", "Why? It costs 3.5!"]


@pytest.fixture(scope="module")
def model(config: Path) -> Any:
    return loading.load(str(config), "cpu", 1)


@pytest.fixture(scope="module")
def voice(model: Any) -> states.State:
    return states.learn(model, recording(220))


def package(model: Any, voice: states.State, text: str) -> Samples:
    """What pocket-tts makes of a text by itself."""
    model.max_decoder_frames_per_call = 1
    made: Samples = model.generate_audio(voice, text).numpy()
    return made


def ours(model: Any, voice: states.State, text: str, noise: speaker.Noise, heat: float) -> Samples:
    frames = speaker.Speaker(model).speak(text, voice, heat, noise, lambda: False)
    return np.concatenate(list(frames))


@pytest.mark.parametrize(
    ("sampler", "texts"),
    [
        ("lsd", TEXTS),
        ("flow_matching", TEXTS[:1]),
        ("drifting", TEXTS[:1]),
        ("pointwise", TEXTS[:1]),
    ],
)
def test_the_samples_are_the_packages_bit_for_bit(
    tmp_path: Path, sampler: str, texts: list[str]
) -> None:
    model = loading.load(str(tiny(tmp_path, flow=sampler)), "cpu", 3)
    voice = states.learn(model, recording(220))
    for text in texts:
        torch.manual_seed(5)
        expected = package(model, voice, text)
        torch.manual_seed(5)
        torch.randn(1, 8)  # which the package draws when it reads the text, and throws away
        got = ours(model, voice, text, lambda n, std: torch.empty(1, n).normal_(0, std), 0.3)
        np.testing.assert_array_equal(got, expected, err_msg=text)


def test_a_text_of_two_sentences_is_the_packages_as_well(model: Any, voice: states.State) -> None:
    first, second = "The first of them has these words.", "The second one has others."
    assert len(first + second) > 50
    model.temp = 0.0
    expected = package(model, voice, f"{first} {second}")
    model.temp = 0.3
    noise = speaker.noise(1, model.device)
    np.testing.assert_array_equal(ours(model, voice, f"{first} {second}", noise, 0.0), expected)


def test_a_voice_is_not_changed_by_speaking(model: Any, voice: states.State) -> None:
    before = {name: module["cache"].clone() for name, module in voice.items()}
    ours(model, voice, "Hello there.", speaker.noise(1, model.device), 0.3)
    assert all(torch.equal(voice[name]["cache"], before[name]) for name in before)


def test_nobody_elses_random_numbers_are_touched(model: Any, voice: states.State) -> None:
    before = torch.get_rng_state()
    for seed in (None, 7):
        ours(model, voice, "Hello there.", speaker.noise(seed, model.device), 0.3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("text", "frames"), [("One two three.", 11), ("One two three four five", 9)]
)
def test_a_sentence_ends_a_few_frames_after_its_last_sound(
    model: Any, voice: states.State, text: str, frames: int
) -> None:
    samples = ours(model, voice, text, speaker.noise(1, model.device), 0.3)
    assert len(samples) == frames * 1920  # six before it may end, and what the package adds


def test_what_the_configuration_says_of_the_end_is_followed(tmp_path: Path) -> None:
    config = tiny(tmp_path, model_recommended_frames_after_eos=0)
    model = loading.load(str(config), "cpu", 1)
    voice = states.learn(model, recording(220))
    samples = ours(model, voice, "One two.", speaker.noise(1, model.device), 0.3)
    assert len(samples) == 6 * 1920
    assert len(package(model, voice, "One two.")) == len(samples)


def test_a_sentence_without_an_end_is_ended_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = loading.load(str(tiny(tmp_path, default_eos_threshold=NEVER)), "cpu", 1)
    voice = states.learn(model, recording(220))
    samples = ours(model, voice, "Hi.", speaker.noise(1, model.device), 0.3)
    assert len(samples) == 38 * 1920  # 3 s for as many tokens
    (record,) = [each for each in caplog.records if each.name.startswith("tts_plugins")]
    assert record.getMessage() == "pocket's model didn't end a sentence within 3 s"
    assert package(model, voice, "Hi.").shape == samples.shape


def test_a_text_that_the_model_deletes_has_no_frames(model: Any, voice: states.State) -> None:
    frames = speaker.Speaker(model).speak(
        "\u0394", voice, 0.0, speaker.noise(1, model.device), lambda: False
    )
    assert list(frames) == []
