"""A stranger's engine that comes as one file: installed, found, checked; and what a whisper is."""

from __future__ import annotations

import inspect
import re
import subprocess
import tomllib
import wave
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from examples.agents import custom_engine
from examples.agents.custom_engine import Whisper, WhisperEngine
from tests.agents.running import Running
from tests.documents import ROOT, environment
from tts_plugins.audio.pcm import joined
from tts_plugins.engines.hibari import HibariEngine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import InvalidRequestError
from tts_plugins.types import AudioChunk, Samples, SynthesisRequest, Word

TEXT = "The key is under the third stone."
RATE = 24_000


def hum(seconds: float = 1.0, hertz: float = 120) -> Samples:
    """A voice without a mouth: all harmonics of a tone, as strong as each other."""
    t = np.arange(round(seconds * RATE)) / RATE
    tones = [np.cos(2 * np.pi * hertz * n * t) for n in range(1, 40)]
    samples: Samples = (0.01 * np.sum(tones, axis=0)).astype(np.float32)
    return samples


def whispered(samples: Samples, *, by: int | None = None, breath: float = 1.0) -> Samples:
    whisper = Whisper(RATE, breath)
    by = by or len(samples) + 1
    parts = [whisper.push(samples[start : start + by]) for start in range(0, len(samples), by)]
    return joined([*parts, whisper.flush()])


def tonality(samples: Samples, hertz: float = 120) -> float:
    """How much a period resembles the next: 1 is a tone."""
    period = round(RATE / hertz)
    return float(np.corrcoef(samples[:-period], samples[period:])[0, 1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file, and with what its docstring has in a pyproject.toml, as of pip."""
    folder = tmp_path_factory.mktemp("stranger")
    document = inspect.getdoc(custom_engine) or ""
    toml = "\n".join(line[4:] for line in document.splitlines() if line.startswith("    "))
    project = tomllib.loads(toml)
    name, version = project["project"]["name"], project["project"]["version"]
    points = project["project"]["entry-points"]
    assert points == {"tts_plugins.engines": {"whisper": "tts_whisper:WhisperEngine"}}
    source = (ROOT / "examples/agents/custom_engine.py").read_text("utf-8")
    (folder / "tts_whisper.py").write_text(source, "utf-8")
    info = folder / f"tts_whisper-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(
        "[tts_plugins.engines]\nwhisper = tts_whisper:WhisperEngine\n"
    )
    return folder


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tts-plugins", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder),
        check=False,
        timeout=60,
    )


def test_installed_it_is_listed_with_its_package(installed: Path) -> None:
    assert "whisper\ttts-whisper 0.1.0\tyes\n" in command(installed, "engines").stdout


def test_installed_it_keeps_the_contract(installed: Path) -> None:
    result = command(installed, "check", "whisper?of=tone")
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 13
    assert all(line.startswith("ok") for line in lines)


def test_installed_it_speaks_by_its_name(installed: Path) -> None:
    result = command(installed, "say", "Hello.", "--engine", "whisper?of=tone", "-o", "hello.wav")
    assert result.returncode == 0, result.stderr
    with wave.open(str(installed / "hello.wav")) as wav:
        assert wav.getnframes() == 6 * 1440


def test_the_example_checks_it_with_a_real_voice_and_writes_what_it_says() -> None:
    with Running("custom_engine", TEXT, TTS="hibari") as example:
        ended = example.end()
    assert ended.status == 0
    *checks, summary = ended.output.splitlines()
    assert len(checks) == 13
    assert all(line.startswith("ok") for line in checks)
    said = re.fullmatch(r"(.*) s in out/whisper\.wav", summary)
    assert said
    with wave.open(str(ROOT / "out" / "whisper.wav")) as wav:
        seconds = wav.getnframes() / wav.getframerate()
    assert f"{seconds:.1f}" == said[1]
    assert 1.0 < seconds < 4.0


def test_ctrl_c_ends_it_in_its_middle() -> None:
    with Running("custom_engine", TEXT * 1000, TTS="hibari") as example:
        example.wait_for("^ok")
        ended = example.press_ctrl_c()
    assert ended.status == 0, ended.output
    assert "Traceback" not in ended.output
    assert "out/whisper.wav" not in ended.output


def test_an_engine_that_is_somewhere_else_is_one_line() -> None:
    with Running("custom_engine", TTS="http://127.0.0.1:9") as example:
        ended = example.end()
    assert ended.status == 1
    assert len(ended.output.splitlines()) == 1


@pytest.mark.parametrize("by", [1, 7, 480, 481, 5_000])
def test_however_the_voice_is_cut_it_is_the_same_whisper(by: int) -> None:
    voice = hum(0.25)
    assert np.array_equal(whispered(voice, by=by), whispered(voice))


@pytest.mark.parametrize("n", [0, 1, 239, 240, 241, 480, 5_999])
def test_it_is_as_long_as_the_voice(n: int) -> None:
    assert len(whispered(hum()[:n])) == n


def test_no_more_than_20_ms_are_held_back() -> None:
    whisper, voice = Whisper(RATE, 1.0), hum(0.2)
    given = 0
    for taken in range(0, 4_800, 100):
        given += len(whisper.push(voice[taken : taken + 100]))
        assert taken + 100 - given < RATE // 50


def test_the_tone_is_gone_and_it_is_as_loud() -> None:
    voice = hum()
    heard = whispered(voice)
    assert tonality(voice) > 0.95
    assert abs(tonality(heard)) < 0.15
    assert float(np.std(heard)) == pytest.approx(float(np.std(voice)), rel=0.15)


def test_with_half_the_breath_the_tone_is_there_still() -> None:
    assert 0.3 < tonality(whispered(hum(), breath=0.5)) < 0.8


def test_without_breath_it_is_the_voice_behind_its_first_10_ms() -> None:
    voice = hum()
    assert np.allclose(whispered(voice, breath=0)[240:-240], voice[240:-240], atol=1e-6)


def test_silence_stays_silent() -> None:
    assert np.all(np.abs(whispered(np.zeros(4_800, np.float32))) < 1e-3)


def test_a_real_voice_keeps_its_words_and_its_length() -> None:
    request = SynthesisRequest(TEXT, options={"seed": 1})
    with closing(HibariEngine()) as hibari, closing(WhisperEngine()) as engine:
        plain, chunks = list(hibari.synthesize(request)), list(engine.synthesize(request))
    assert _words(chunks) == _words(plain)
    assert _length(chunks) == _length(plain)


def test_options_are_its_own_and_those_of_whom_it_wraps() -> None:
    engine = WhisperEngine("tone")
    assert engine.request_options == ("breath",)
    for options, complaint in (
        ({"breath": 2}, "the option breath is a number from 0 to 1, not 2"),
        ({"breath": 1, "nothing": 1}, "tone has no option nothing; it has none"),
    ):
        with pytest.raises(InvalidRequestError, match=complaint):
            next(engine.synthesize(SynthesisRequest(TEXT, options=options)))
    loud = list(engine.synthesize(SynthesisRequest("ab", options={"breath": 0})))
    plain = list(ToneEngine().synthesize(SynthesisRequest("ab")))
    assert _length(loud) == _length(plain)


def _words(chunks: list[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def _length(chunks: list[AudioChunk]) -> int:
    return sum(len(chunk.samples) for chunk in chunks)
