"""What comes of weights that aren't there, or are something else; and how steps are broken off."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tests.engines.vieneu.models import CODEC_REPO, NANO_REPO, TURBO_REPO, make_nano, node, save
from tts_plugins.engines.vieneu import VieNeuEngine, loading
from tts_plugins.errors import EngineError, InvalidRequestError, MissingDependencyError
from tts_plugins.interruption import Interruption
from tts_plugins.types import SynthesisRequest

# NumPy leaves a file open that it can't make out.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


def snapshot(hub: Path, repo: str) -> Path:
    return hub / f"models--{repo.replace('/', '--')}" / "snapshots" / "abc"


@pytest.fixture
def own(hub: Path, tmp_path: Path, offline: pytest.MonkeyPatch) -> Iterator[Path]:
    """A hub's cache that a test may damage."""
    import huggingface_hub.constants as constants

    shutil.copytree(hub, tmp_path / "hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield tmp_path / "hub"


@pytest.fixture(scope="module", autouse=True)
def no_file_left_open() -> Iterator[None]:
    """Let none be found open in the tests of others."""
    yield
    gc.collect()


def test_without_the_sdk_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"vieneu": None}
    monkeypatch.setattr(loading, "find_spec", lambda name: found.get(name, find_spec(name)))
    with pytest.raises(MissingDependencyError, match=r'pip install "tts-plugins\[vieneu\]"'):
        VieNeuEngine(device="cpu")


def test_without_what_the_sdk_needs_it_is_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "vieneu"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vieneu", None)
    with pytest.raises(MissingDependencyError, match="vieneu needs more"):
        loading.open_sdk("v3turbo", frames=1)


@pytest.mark.parametrize("repo", [TURBO_REPO, CODEC_REPO])
def test_weights_that_are_nowhere_are_told_with_a_remedy(own: Path, repo: str) -> None:
    shutil.rmtree(own / f"models--{repo.replace('/', '--')}")
    remedy = r"v3 Turbo aren't all there .*: download them once while there is a network"
    with pytest.raises(EngineError, match=remedy) as caught:
        VieNeuEngine(device="cpu")
    assert "\n" not in str(caught.value)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def made_html(path: Path) -> None:
    path.write_text("<!DOCTYPE html><title>404</title>")


def made_another(path: Path) -> None:
    shape = ("x", TensorProto.FLOAT, ("N",))
    save(path, [node("Abs", ["x"], ["y"])], [shape], [("y", *shape[1:])], {})


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("damage", [cut_short, made_html, removed])
@pytest.mark.parametrize(
    "name",
    [
        "onnx_update/vieneu_prefill.onnx",
        "onnx_update/vieneu_v3_heads.npz",
        "onnx_update/config.json",
        "onnx_update/tokenizer.json",
    ],
)
def test_a_damaged_file_of_turbo_is_told_in_one_line(
    own: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(snapshot(own, TURBO_REPO) / name)
    with pytest.raises(EngineError, match="VieNeu v3 Turbo ") as caught:
        VieNeuEngine(device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [cut_short, made_html, removed])
@pytest.mark.parametrize("name", ["text_encoder.onnx", "constants.npz", "config.json"])
def test_a_damaged_file_of_nano_is_told_in_one_line(
    own: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(snapshot(own, NANO_REPO) / name)
    with pytest.raises(EngineError, match="VieNeu v3 Nano ") as caught:
        VieNeuEngine("v3nano")
    assert "\n" not in str(caught.value)


def test_another_models_network_is_noticed_when_it_is_opened(own: Path) -> None:
    made_another(snapshot(own, TURBO_REPO) / "onnx_update" / "vieneu_prefill.onnx")
    with pytest.raises(EngineError, match="v3 Turbo can't be loaded from the hub") as caught:
        VieNeuEngine(device="cpu", threads=1)
    assert "\n" not in str(caught.value)


def test_one_models_folder_is_not_anothers(own: Path) -> None:
    with pytest.raises(EngineError, match=r"v3 Nano (can't be loaded|aren't all there)"):
        VieNeuEngine("v3nano", onnx_dir=snapshot(own, TURBO_REPO) / "onnx_update")


def test_a_folder_takes_the_place_of_the_hub(own: Path, tmp_path: Path) -> None:
    for model, repo, folder in (
        ("v3turbo", TURBO_REPO, "onnx_update"),
        ("v3nano", NANO_REPO, "."),
    ):
        shutil.move(snapshot(own, repo) / folder, tmp_path / model)
        engine = VieNeuEngine(model, onnx_dir=tmp_path / model, threads=1)  # type: ignore[arg-type]
        assert next(engine.synthesize(SynthesisRequest("Xin chào.")))
        engine.close()


def test_int8_is_another_folder_of_the_same(own: Path) -> None:
    shutil.rmtree(snapshot(own, TURBO_REPO) / "onnx_update")
    engine = VieNeuEngine(precision="int8", threads=1)
    assert next(engine.synthesize(SynthesisRequest("Xin chào.")))
    engine.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "v2"}, "models are v3turbo and v3nano, not 'v2'"),
        ({"precision": "fp16"}, "precision is fp32 or int8, not 'fp16'"),
        ({"device": "tpu"}, "runs on auto, cpu or cuda, not on 'tpu'"),
        ({"model": "v3nano", "device": "cuda"}, "v3nano, int8 and onnx_dir are for CPUs"),
        ({"slots": 0}, "slots is an int from 1 to 64, not 0"),
        ({"threads": -1}, "threads is an int from 0 to 256, not -1"),
        ({"frames": 2.5}, "frames is an int from 1 to 25, not 2.5"),
        ({"device": "cpu", "voice": "alloy"}, "no voice 'alloy'; available: "),
    ],
)
def test_settings_that_there_are_not_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        VieNeuEngine(**settings)


def test_a_gpu_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_gpu_is_there", lambda: False)
    with pytest.raises(EngineError, match="no GPU that torch can use"):
        VieNeuEngine(device="cuda")


def test_a_watermark_is_put_into_no_less_than_the_sdk_does(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Marker:
        """In place of resemble-perth's."""

        def apply_watermark(self, wav: Any, *, sample_rate: int) -> Any:
            marked.append(len(wav))
            return wav * 0.5

    from vieneu.base import BaseVieneuTTS

    def mark(self: Any) -> None:
        self.watermarker = Marker()

    monkeypatch.setattr(BaseVieneuTTS, "_init_watermarker", mark)
    marked: list[int] = []
    for watermark, count in ((True, 2), (False, 0)):
        marked.clear()
        engine = VieNeuEngine(device="cpu", threads=1, watermark=watermark)
        assert marked == []
        stream = engine.synthesize(SynthesisRequest("Xin chào các bạn, hôm nay trời đẹp quá."))
        for _ in range(4):
            next(stream)
        engine.close()
        assert len(marked) == count
        assert set(marked) <= {4 * 3840}


def test_a_network_that_never_ends_ends_for_who_has_left(tmp_path: Path) -> None:
    make_nano(tmp_path)
    engine = VieNeuEngine("v3nano", onnx_dir=tmp_path, threads=1)
    endless = helper.make_graph(
        [node("Identity", ["going"], ["goes"]), node("Mul", ["v0", "one"], ["v1"])],
        "round",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("going", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v0", TensorProto.FLOAT, (1, 144, "T")),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v1", TensorProto.FLOAT, (1, 144, "T")),
        ],
    )
    voice = [("spk", TensorProto.FLOAT, (1, 192)), ("style", TensorProto.FLOAT, (1, 50, 256))]
    save(
        tmp_path / "vector_estimator.onnx",
        [node("Loop", ["rounds", "yes", "x"], ["v"], body=endless)],
        [
            ("x", TensorProto.FLOAT, (1, 144, "T")),
            ("t", TensorProto.FLOAT, (1,)),
            ("ctx", TensorProto.FLOAT, (1, "L", 1)),
            ("ctx_mask", TensorProto.BOOL, (1, "L")),
            *voice,
        ],
        [("v", TensorProto.FLOAT, (1, 144, "T"))],
        {"rounds": np.array(2**60), "yes": np.array(True), "one": np.array(1, np.float32)},
    )
    session = engine._sdk.engine.s_ve
    session._session = ort.InferenceSession(tmp_path / "vector_estimator.onnx")
    interruption, began = Interruption(), threading.Event()
    stream = engine.synthesize(SynthesisRequest("Xin chào."))
    run = session.run

    def spy(*args: Any) -> Any:
        began.set()
        return run(*args)

    session.run = spy
    errors: list[Exception] = []

    def step() -> None:
        with interruption.concerns():
            try:
                next(stream)
            except EngineError as error:
                errors.append(error)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    assert began.wait(10)
    interruption.interrupt()
    thread.join(10)
    assert len(errors) == 1
    assert engine._sdk.engine._lock.acquire(blocking=False)
    engine._sdk.engine._lock.release()
    engine.close()
