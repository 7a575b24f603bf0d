"""Where an engine may compute."""

from __future__ import annotations

import os

import onnxruntime as ort
import pytest

from tts_plugins.devices import cores, providers
from tts_plugins.errors import EngineError, InvalidRequestError

GPU, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@pytest.mark.parametrize("device", ["cpu", CPU, [CPU]])
def test_the_cpu_is_always_there(device: str | list[str]) -> None:
    assert providers(device) == (CPU,)


def test_a_gpu_has_the_cpu_for_what_it_can_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: [GPU, CPU])
    assert providers("cuda") == (GPU, CPU)
    assert providers(GPU) == (GPU,)


@pytest.mark.parametrize(
    ("device", "remedy"),
    [
        ("cuda", f"no {GPU}, only {CPU}: pip uninstall onnxruntime && pip install onnxruntime-gpu"),
        ("coreml", f"no CoreMLExecutionProvider, only {CPU}: get an onnxruntime that has it"),
    ],
)
def test_a_provider_that_is_not_there_is_told_with_the_remedy(
    device: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: [CPU])
    with pytest.raises(EngineError, match=remedy):
        providers(device)


@pytest.mark.parametrize("device", ["gpu", "", []])
def test_a_device_that_there_is_not_is_refused(device: str | list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="there are cpu, cuda, coreml, dml"):
        providers(device)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system can't tell")
def test_only_cores_that_this_process_may_use_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert cores() == 3
