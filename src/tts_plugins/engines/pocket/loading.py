"""Which of pocket-tts's models to load, and how to leave no trace in the rest of the process.

To import pocket_tts (4.0.1) sets torch to one thread everywhere, and to load a model with it may
give the root logger a handler. Both are put back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tts_plugins.devices import cores
from tts_plugins.errors import EngineError, InvalidRequestError, MissingDependencyError

_STEMS = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "nl": "dutch",
    "pt": "portuguese",
}
"""What the names of the models for a language begin with."""

_SMALL = ((4, "english_2m_2026-10"), (8, "english_18m_2026-10"))
"""English models for machines with fewer cores than that. A frame of 80 ms takes 20 ms with the
first, 50 with the second and 100 with the largest, on one core of 2.5 GHz with AVX2."""

_HUB = frozenset({"huggingface_hub", "httpcore", "httpx", "httpx2", "requests", "urllib3"})
"""Packages whose errors come from the network."""

_CLONING = (
    "accept the terms at https://huggingface.co/kyutai/pocket-tts, log in with `hf auth login`, "
    "and open the engine again"
)


def imported() -> None:
    """Import the package, leaving torch with the threads that it had.

    Raises:
        MissingDependencyError: It isn't installed.
    """
    try:
        found = find_spec("pocket_tts") and find_spec("torch")
    except ValueError:  # somebody's stand-in for it
        found = None
    if not found:
        raise MissingDependencyError("pocket")
    import torch

    threads = torch.get_num_threads()
    try:
        import pocket_tts  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("pocket") from error
    finally:
        torch.set_num_threads(threads)


def model_names() -> list[str]:
    """The models that the package knows by name."""
    from pocket_tts.utils import config

    return sorted(path.stem for path in config.CONFIGS_DIR.glob("*.yaml"))


def choose(model: str | None, language: str | None, cores: int) -> tuple[str, str]:
    """A model and what it speaks: a name or the path of a configuration, and a language tag.

    Raises:
        InvalidRequestError: There is no such model, none for that language, or it speaks another.
    """
    if model is not None and model.split("@")[0].endswith((".yaml", ".yml")):
        return model, language or "und"
    names = model_names()
    wanted = None if language is None else _stem(language)
    if model is None:
        stem = wanted or "english"
        small = next((name for fewer, name in _SMALL if cores < fewer), stem)
        return (small if stem == "english" and small in names else stem), _tag(stem)
    if model not in names:
        raise InvalidRequestError(
            f"pocket has no model {model!r}; it has {', '.join(names)}; or give a path to a .yaml"
        )
    stem = model.split("_")[0]
    if wanted not in (None, stem):
        raise InvalidRequestError(f"pocket's model {model!r} speaks {stem}, not {language!r}")
    return model, _tag(stem)


def load(model: str, device: str, decode_steps: int) -> Any:
    """The model, ready to speak.

    Args:
        model: A name, or the path or address of a configuration.
        device: As torch calls it.
        decode_steps: Steps from noise to a frame.

    Raises:
        InvalidRequestError: torch has no such device.
        EngineError: It can't be loaded, or not be downloaded.
    """
    from pocket_tts import TTSModel

    _check_device(device)
    named = {"language": model} if model in model_names() else {"config": model}
    try:
        with _logging_kept():
            loaded = TTSModel.load_model(**named, sampler_decode_steps=decode_steps)
        return loaded.eval().to(device)
    except Exception as error:  # files, hub, yaml, torch: each has errors of its own
        raise EngineError(
            f"pocket's model {model!r} can't be loaded: {reason(error)}; {remedy(error)}"
        ) from error


def fingerprint(model: Any) -> str:
    """What tells these weights from all others, for a voice is of use to no others.

    It is the same whether or not the weights for cloning were to be had.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.flow_lm.state_dict().items()):
        if name != "speaker_proj_weight":
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().contiguous().numpy())
    return digest.hexdigest()


def check_there(model: Any) -> None:
    """Whether there is a model still, while another thread may close the engine.

    Raises:
        EngineError: There is none.
    """
    if model is None:
        raise EngineError("this pocket engine is closed; open another one")


def check_cloning(model: Any) -> None:
    """Whether it has the weights that cloning needs.

    Raises:
        EngineError: It hasn't, or there is none any more.
    """
    check_there(model)
    if not model.has_voice_cloning:
        raise EngineError(f"pocket has loaded weights that can't clone: {_CLONING}")


def workers(model: Any) -> int:
    """How many steps may run at once, with the threads that torch takes for each."""
    import torch

    return max(1, cores() // torch.get_num_threads()) if model.device.type == "cpu" else 1


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": .;")


def remedy(error: BaseException) -> str:
    """What to do about an error of the package, in half a sentence."""
    kinds = [type(each) for each in _chain(error)]
    if any("Gated" in kind.__name__ for kind in kinds):
        return _CLONING
    if any(kind.__module__.split(".")[0] in _HUB for kind in kinds):
        return "check the connection to huggingface.co, or set HF_HOME to where its files are"
    return "check the file, and those that it names"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter without CUDA compiled in
        raise InvalidRequestError(
            f"torch has no device {device!r} here ({reason(error)}); use 'cpu', "
            "or install torch for it"
        ) from error


@contextmanager
def _logging_kept() -> Iterator[None]:
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        yield
    finally:
        for handler in [each for each in root.handlers if each not in before]:
            root.removeHandler(handler)


def _stem(language: str) -> str:
    primary = language.replace("_", "-").split("-")[0].lower()
    stem = _STEMS.get(primary, primary)
    if stem not in _STEMS.values():
        raise InvalidRequestError(
            f"pocket has no model for {language!r}; its languages: {', '.join(sorted(_STEMS))}"
        )
    return stem


def _tag(stem: str) -> str:
    return next((tag for tag, name in _STEMS.items() if name == stem), "und")
