"""tts_plugins.cli: every command, how it ends, and what it leaves behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import warnings
import wave
from collections.abc import Generator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from rich.progress import Progress

from tests.server.cloner import Parrot, recording
from tts_plugins.cli import main
from tts_plugins.cli.speaking import Speech, _progress
from tts_plugins.engine import Engine
from tts_plugins.engines.tone import ToneEngine
from tts_plugins.errors import UnreadableTextWarning
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

COMMAND = [sys.executable, "-c", "from tts_plugins.cli import main; main()"]
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
"""For a child of a shell that ignores Ctrl-C, as those in the background do."""
HEADER = 44
BEEP = 1_440 * 2
"""Bytes that the tone engine speaks a character with, at 24 kHz."""


class Result:
    """How a command ended, and what it said."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Result:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        status = exit_.value.code or 0
        out, err = self._capsys.readouterr()
        if isinstance(status, str):
            return Result(1, out, err + status)
        return Result(int(status), out, err)


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


class SpyEngine(ToneEngine):
    """A tone engine that remembers, warns when it meets Chinese, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self.texts.append(request.text)
        if "你" in request.text:
            logging.getLogger("tts_plugins.spy").warning("nobody here reads %r", "你")
            warnings.warn("nobody here reads '你'", UnreadableTextWarning, stacklevel=1)
        yield from super().synthesize(request)
        if "fail" in request.text:
            raise RuntimeError("the engine broke")

    def voices(self) -> Sequence[Voice]:
        return [*super().voices(), Voice("distant", "en-GB", "Far away", ready=False)]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> SpyEngine:
    engine = SpyEngine()

    def opened(spec: str, **options: float) -> Engine:
        return Scheduler(engine, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("tts_plugins.cli.speaking.open_engine", opened)
    monkeypatch.setattr("tts_plugins.cli.app.open_engine", opened)
    return engine


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [COMMAND[0], "-c", LISTENING + COMMAND[-1], *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def frames(path: Path) -> int:
    """Samples in a WAV file whose header tells the truth."""
    with wave.open(str(path)) as reader:
        n: int = reader.getnframes()
        assert len(reader.readframes(n)) == 2 * n
        assert path.stat().st_size == HEADER + 2 * n
        return n


def fake_player(folder: Path) -> str:
    """A PATH whose only player sends what it plays to standard output."""
    player = folder / "aplay"
    player.write_text("#!/bin/sh\nexec /bin/cat\n")
    player.chmod(0o755)
    return str(folder)


# ---------------------------------------------------------------- say, into a file


def test_a_text_is_spoken_into_a_file(shell: Shell) -> None:
    result = shell("say", "Hello there.", "--engine", "tone", "-o", "hello.wav")
    assert result.status == 0
    assert frames(Path("hello.wav")) == 11 * 1_440
    assert "first sound after" in result.err
    assert result.err.endswith("of real time: hello.wav\n")
    assert result.out == ""
    assert os.listdir() == ["hello.wav"]  # noqa: PTH208


def test_without_a_name_the_file_is_speech(shell: Shell) -> None:
    assert shell("say", "Hello.", "--engine", "tone").err.endswith(": speech.wav\n")
    assert frames(Path("speech.wav")) == 6 * 1_440


def test_pcm_is_bare_samples(shell: Shell) -> None:
    shell("say", "Hello.", "--engine", "tone", "-o", "hello.raw")
    shell("say", "Hello.", "--engine", "tone", "--format", "pcm", "-o", "hello.bin")
    assert Path("hello.raw").stat().st_size == 6 * BEEP
    assert Path("hello.raw").read_bytes() == Path("hello.bin").read_bytes()


def test_the_rate_and_the_speed_are_free(shell: Shell) -> None:
    options = ("--rate", "8000", "--speed", "2")
    shell("say", "Hello.", "--engine", "tone", *options, "-o", "hello.wav")
    assert frames(Path("hello.wav")) == 6 * 480 / 2


def test_a_device_is_written_to_and_not_replaced(shell: Shell) -> None:
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE)
    assert shell("say", "Hello.", "--engine", "tone", "-o", "pipe").status == 0
    assert len(reader.communicate()[0]) == HEADER + 6 * BEEP
    assert Path("pipe").is_fifo()


def test_a_link_stays_a_link(shell: Shell) -> None:
    Path("target.wav").touch()
    Path("link.wav").symlink_to("target.wav")
    shell("say", "Hello.", "--engine", "tone", "-o", "link.wav")
    assert Path("link.wav").is_symlink()
    assert frames(Path("target.wav")) == 6 * 1_440


def test_a_link_may_lead_to_another_file_system(shell: Shell) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no other file system here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        target = Path(elsewhere, "target.wav")
        Path("link.wav").symlink_to(target)
        assert shell("say", "Hello.", "--engine", "tone", "-o", "link.wav").status == 0
        assert frames(target) == 6 * 1_440
        assert os.listdir(elsewhere) == ["target.wav"]  # noqa: PTH208


def test_the_device_of_standard_output_is_no_file(tmp_path: Path) -> None:
    with (tmp_path / "out.wav").open("wb") as out:
        arguments = ["say", "Hello.", "--engine", "tone", "-o", "/dev/stdout"]
        subprocess.run([*COMMAND, *arguments], stdout=out, stderr=subprocess.DEVNULL, check=True)
    assert len((tmp_path / "out.wav").read_bytes()) == HEADER + 6 * BEEP


def test_hibari_speaks(shell: Shell) -> None:
    result = shell("say", "The train to Hamburg leaves at seven.", "-o", "train.wav")
    assert result.status == 0, result.err
    assert 1.5 < frames(Path("train.wav")) / 24_000 < 4.0


# ---------------------------------------------------------------- say, when it goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Hello.", "--voice", "bob"], "error: no voice 'bob'; available: tone\n"),
        (
            ["Hello.", "--engine", "nobody"],
            "error: no engine 'nobody'; available: hibari, kokoro, piper, pocket, tone, vieneu\n",
        ),
        (["Hello.", "--speed", "9"], "error: speed 9.0 is outside 0.25 to 4.0\n"),
        (["Hello.", "--speed", "nan"], "error: speed nan is outside 0.25 to 4.0\n"),
        (["Hello.", "--rate", "0"], "error: rate 0 is outside 4000 to 192000\n"),
        (["Hello.", "--format", "mp3"], "error: no format 'mp3'; available: wav, pcm\n"),
        (["Hello.", "-o", "a.mp3"], "error: no format 'mp3'; available: wav, pcm\n"),
        (["  "], "error: no text to say\n"),
        (["Hello.", "-o", "."], "error: .: Is a directory\n"),
        (["Hello.", "-o", "no/a.wav"], "error: no/a.wav: No such file or directory\n"),
    ],
)
def test_what_cannot_work_is_one_line_and_no_file(
    shell: Shell, arguments: list[str], message: str
) -> None:
    result = shell("say", "--engine", "tone", *arguments)
    assert (result.status, result.err) == (1, message)
    assert os.listdir() == []  # noqa: PTH208


@pytest.mark.parametrize("arguments", [["say", "Hello.", "--speed", "fast"], ["sing"], ["check"]])
def test_a_wrong_call_is_one_line_and_status_2(shell: Shell, arguments: list[str]) -> None:
    result = shell(*arguments)
    assert result.status == 2
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


def test_an_unwritable_file_is_noticed_before_anything_is_spoken(
    shell: Shell, spy: SpyEngine
) -> None:
    Path("file").touch()
    assert shell("say", "Hello.", "-o", "file/a.wav").err == "error: file/a.wav: Not a directory\n"
    assert spy.texts == []


def test_a_failure_leaves_the_old_file_and_half_a_new_one_beside_it(
    shell: Shell, spy: SpyEngine
) -> None:
    Path("a.wav").write_text("old")
    result = shell("say", "Hello there. Now fail.", "-o", "a.wav")
    assert result.status == 1
    assert result.err.endswith("; what was spoken until then is in a.part.wav\n")
    assert result.err.count("\n") == 1
    assert Path("a.wav").read_text() == "old"
    assert frames(Path("a.part.wav")) == (11 + 8) * 1_440


def test_text_that_the_voice_cannot_read_is_a_warning_of_one_line(
    shell: Shell, spy: SpyEngine
) -> None:
    result = shell("say", "Hello 你好. And 你.", "-o", "a.wav")
    assert result.status == 0
    assert result.err.startswith("warning: nobody here reads '你'\nfirst sound")


def test_without_a_player_playing_is_refused(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = shell("say", "Hello.", "--engine", "tone", "--play")
    assert result.status == 1
    assert result.err.startswith("error: nothing to play with; install one of ffmpeg")


def test_a_player_that_stops_is_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", fake_player(tmp_path))
    Path("aplay").write_text("#!/bin/sh\nexit 3\n")
    result = shell("say", "Hello.", "--engine", "tone", "--play")
    assert (result.status, result.err) == (1, "error: aplay stopped with status 3\n")


def test_without_typer_it_says_what_to_install() -> None:
    for missing in ("typer", "rich"):
        code = f"import sys; sys.modules[{missing!r}] = None; {COMMAND[-1]}"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert result.returncode == 1
        assert result.stderr == b'cli needs more: pip install "tts-plugins[cli]"\n'


# ---------------------------------------------------------------- say, through pipes


def test_speech_leaves_while_text_still_arrives() -> None:
    with start("say", "--engine", "tone", "-o", "-") as process:
        stdin, stdout = pipe(process.stdin), pipe(process.stdout)
        stdin.write(b"Hello there. How ar")
        stdin.flush()
        first = stdout.read(HEADER + 11 * BEEP)  # hangs if it waits for the end
        assert first[:4] + first[40:44] == b"RIFF\xff\xff\xff\xff"
        stdin.write("e you, Zoë?\n".encode()[:-3])  # cut inside a character
        stdin.flush()
        stdin.write("e you, Zoë?\n".encode()[-3:])
        stdin.close()
        assert len(stdout.read()) == 14 * BEEP
        assert b"standard output" in pipe(process.stderr).read()
    assert process.returncode == 0


def test_text_without_an_end_in_sight_is_spoken_all_the_same() -> None:
    with start("say", "--engine", "tone", "-o", "-") as process:
        stdin, stdout = pipe(process.stdin), pipe(process.stdout)
        stdin.write(b"one two three four five six ")
        stdin.flush()
        assert len(stdout.read(HEADER + 3 * BEEP)) == HEADER + 3 * BEEP  # and stdin is still open
        stdin.close()
        stdout.read()


def test_a_long_text_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[float] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(Progress, "update", lambda *_, advance, **__: shown.append(advance))
    with _progress("word " * 100) as advance:
        advance(AudioChunk(np.zeros(10, np.float32), 10, (Word("word", 0, 0.0, 1.0),)))
    assert shown == [4]


def test_an_empty_input_is_refused() -> None:
    with start("say", "-", "--engine", "tone", "-o", "-") as process:
        out, err = process.communicate(b" \n")
    assert (process.returncode, out, err) == (1, b"", b"error: no text to say\n")


@pytest.mark.parametrize(
    ("redirected", "message"),
    [
        ("say <&-", "error: no text to say\n"),
        ("say Hello. -o - >&-", "error: standard output is closed\n"),
        ("say Hello. -o /dev/full", "error: No space left on device\n"),
        ("voices >&-", "error: standard output is closed\n"),
    ],
)
def test_what_is_closed_or_full_is_one_line(redirected: str, message: str, tmp_path: Path) -> None:
    result = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {redirected} --engine tone', *(COMMAND[0], COMMAND[2])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (1, message)


def test_without_anywhere_to_say_so_it_speaks(tmp_path: Path) -> None:
    subprocess.run(
        ["bash", "-c", '"$0" -c "$1" say Hello. -o a.wav --engine tone 2>&-', *COMMAND[0::2]],
        cwd=tmp_path,
        check=True,
    )
    assert frames(tmp_path / "a.wav") == 6 * 1_440


@pytest.mark.parametrize("call", ["check tone", "voices", "--help"])
def test_a_reader_that_leaves_a_table_is_no_news(call: str) -> None:
    with start(*call.split()) as process:
        pipe(process.stdout).close()
        assert pipe(process.stderr).read() == b""
    assert process.returncode == 141


def test_a_reader_that_leaves_is_no_news() -> None:
    with start("say", "Hello there. " * 50, "--engine", "tone", "-o", "-") as process:
        pipe(process.stdout).read(HEADER)
        pipe(process.stdout).close()
        assert pipe(process.stderr).read() == b""
    assert process.returncode == 141


def test_it_plays_while_it_speaks(tmp_path: Path) -> None:
    path = fake_player(tmp_path)
    with start("say", "Hello there.", "--engine", "tone", "--play", PATH=path) as process:
        out, err = process.communicate()
    assert process.returncode == 0
    assert len(out) == HEADER + 11 * BEEP
    assert err.endswith(b": aplay\n")


def test_interrupting_it_ends_the_file_there(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    path = fake_player(tmp_path)
    arguments = ("say", "--engine", "tone", "-o", str(file), "--play")
    with start(*arguments, PATH=path) as process:
        pipe(process.stdin).write(b"Hello there. And")
        pipe(process.stdin).flush()
        pipe(process.stdout).read(HEADER + 11 * BEEP)  # it has been spoken by now
        process.send_signal(signal.SIGINT)
        assert pipe(process.stderr).read().startswith(b"stopped: first sound after")
    assert process.returncode == 130
    assert frames(file) == 11 * 1_440


# ---------------------------------------------------------------- the other commands


def test_the_version_is_the_package_s(shell: Shell) -> None:
    assert shell("--version").out == version("tts-plugins") + "\n"


def test_without_a_command_it_helps(shell: Shell) -> None:
    result = shell()
    assert result.status == 0
    for command in ("say", "voices", "engines", "check", "clone", "forget", "serve"):
        assert command in result.out


def test_voices_are_columns_between_tabs(shell: Shell, spy: SpyEngine) -> None:
    assert shell("voices").out == (
        "tone\tund\tready\tA beep per word\ndistant\ten-GB\tdownloads first\tFar away\n"
    )


def test_voices_are_a_table_on_a_terminal(
    shell: Shell, spy: SpyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = shell("voices").out
    assert "description" in out
    assert "\t" not in out


def test_an_engine_without_its_packages_is_not_usable(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_plugins.cli.app.find_spec", lambda name: None)
    lines = [line.split("\t") for line in shell("engines").out.splitlines()]
    usable = {name: how for name, _, how in lines}
    assert usable["hibari"] == "yes"
    assert usable["pocket"] == 'no: pocket needs more: pip install "tts-plugins[pocket]"'


def test_engines_tell_where_they_come_from(shell: Shell) -> None:
    lines = [line.split("\t") for line in shell("engines").out.splitlines()]
    package = f"tts-plugins {version('tts-plugins')}"
    assert ["hibari", package, "yes"] in lines
    assert ["tone", package, "yes"] in lines
    assert ["openai+http://...", package, "yes"] in lines


def test_an_engine_that_keeps_the_contract_passes(shell: Shell) -> None:
    result = shell("check", "tone")
    assert result.status == 0
    assert all(line.startswith("ok") for line in result.out.splitlines())


def test_an_engine_that_breaks_it_fails(
    shell: Shell, spy: SpyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SpyEngine, "voices", lambda self: [])
    result = shell("check", "tone")
    assert result.status == 1
    assert "FAILED it has a voice: voices() is empty\n" in result.out


def test_which_engine_to_check_may_be_said_as_elsewhere(shell: Shell, spy: SpyEngine) -> None:
    assert shell("check", "--engine", "tone").out == shell("check", "tone").out
    result = shell("check")
    assert (result.status, result.err) == (
        2,
        "error: Invalid value: which engine? such as: tts-plugins check hibari\n",
    )


# ---------------------------------------------------------------- voices of one's own


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A parrot is the engine, whatever is asked for; the folder in which it keeps voices."""
    folder = tmp_path / "voices"

    def opened(spec: str, **options: float) -> Engine:
        return Scheduler(Parrot(folder), **options)  # type: ignore[arg-type]

    for module in ("app", "cloning", "speaking"):
        monkeypatch.setattr(f"tts_plugins.cli.{module}.open_engine", opened)
    return folder


def test_a_voice_is_cloned_heard_listed_and_forgotten(shell: Shell, parrot: Path) -> None:
    Path("mai.wav").write_bytes(recording(330))
    result = shell("clone", "Mai Anh", "mai.wav", "--engine", "pocket", "--transcript", "Beep.")
    assert (result.status, result.out) == (0, "Mai Anh\n")
    assert result.err == (
        "it is kept; hear it with tts-plugins say Hello. --engine pocket --voice 'Mai Anh'\n"
    )
    assert shell("voices", "--engine", "pocket").out == (
        "own\tund\tready\t\nMai Anh\tund\tready\tcloned\n"
    )
    said = shell("say", "Hello.", "--engine", "pocket", "--voice", "Mai Anh", "-o", "hello.wav")
    assert said.status == 0
    assert frames(Path("hello.wav")) == 6 * 1_440
    result = shell("forget", "Mai Anh", "--engine", "pocket")
    assert (result.status, result.out, result.err) == (0, "", "Mai Anh is forgotten\n")
    result = shell("forget", "Mai Anh", "--engine", "pocket")
    assert (result.status, result.err) == (1, "error: no voice 'Mai Anh'; available: unknown\n")


def test_a_voice_that_cannot_be_kept_is_not_said_to_be(shell: Shell, parrot: Path) -> None:
    parrot.touch()
    Path("mai.wav").write_bytes(recording(330))
    result = shell("clone", "mai", "mai.wav", "--engine", "pocket")
    assert result.err.startswith("warning: the voice 'mai' isn't kept beyond this process: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "clip", "message"),
    [
        ("own", "mai.wav", "error: parrot has a voice 'own' of its own: choose another name"),
        ("mai", "short.wav", "error: the recording is shorter than 0.5 s: say more"),
        ("mai", "page.html", "error: the recording can't be read: "),
        ("mai", "no.wav", "error: can't read the recording no.wav: No such file"),
        ("", "mai.wav", "error: a voice's name has 1 to 256 printable characters, not ''"),
    ],
)
def test_a_voice_that_cannot_be_cloned_is_one_line(
    shell: Shell, parrot: Path, name: str, clip: str, message: str
) -> None:
    Path("mai.wav").write_bytes(recording(330))
    Path("short.wav").write_bytes(recording(330, seconds=0.3))
    Path("page.html").write_text("<html>")
    result = shell("clone", name, clip, "--engine", "pocket")
    assert result.status == 1
    assert result.err.startswith(message)
    assert result.err.count("\n") == 1
    assert not list(parrot.rglob("*.npy"))


@pytest.mark.parametrize("arguments", [("clone", "mai", "mai.wav"), ("forget", "mai")])
def test_an_engine_that_cannot_clone_is_one_line_with_those_that_can(
    shell: Shell, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("tts_plugins.cli.cloning.open_engine")  # that is known before it is loaded
    result = shell(*arguments, "--engine", "tone")
    assert result.status == 1
    assert result.err.startswith("error: tone can't clone voices; these can: ")
    able = result.err.split(": ")[-1].strip().split(", ")
    assert {"pocket", "vieneu", "elevenlabs+http://...", "fish+http://..."} <= {*able}
    assert not {"hibari", "tone", "kokoro+http://..."} & {*able}
    assert result.err.count("\n") == 1


def test_a_servers_voices_are_deleted_there(shell: Shell) -> None:
    result = shell("forget", "mai", "--engine", "http://127.0.0.1:9")
    assert (result.status, result.err) == (
        1,
        "error: http://127.0.0.1:9 has no way to forget a voice: delete it there\n",
    )
    assert shell("clone", "mai", "mai.wav", "--engine", "nobody").err.startswith(
        "error: no engine 'nobody'; available: "
    )


# ---------------------------------------------------------------- what a listener notices


def test_silence_in_front_delays_the_first_sound() -> None:
    now = [100.0]
    speech = Speech(1_000, clock=lambda: now[0])
    with speech.waiting():
        now[0] = 100.25
    speech.add(np.zeros(100, np.float32))
    now[0] = 100.30  # in time: the first 100 ms are still being played
    speech.add(np.array([0.0] * 50 + [0.009, 0.011], np.float32))
    assert speech.first_sound == pytest.approx(0.25 + 0.1 + 0.051)
    assert speech.summary() == "first sound after 401 ms, 0.15 s of audio, 1.645 of real time"


def test_a_late_chunk_delays_the_first_sound() -> None:
    now = [0.0]
    speech = Speech(1_000, clock=lambda: now[0])
    with speech.waiting():
        now[0] = 0.25
    speech.add(np.zeros(100, np.float32))
    now[0] = 2.0
    speech.add(np.ones(10, np.float32))
    assert speech.first_sound == 2.0


def test_silence_alone_has_no_first_sound() -> None:
    speech = Speech(1_000)
    assert speech.summary() == "nothing was said"
    speech.add(np.zeros(100, np.float32))
    assert speech.summary().startswith("silence, 0.10 s of audio")
