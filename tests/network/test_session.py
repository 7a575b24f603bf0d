"""A network runs for as long as somebody waits for it, and not a moment longer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tts_plugins.interruption import Interruption
from tts_plugins.network.session import UNRUNNABLE, Network
from tts_plugins.scheduler import Scheduler
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice

HOURS = 10**10
"""Turns of the loop that nobody waits for."""

SIDE = 64
X = np.ones((SIDE, SIDE), np.float32)


def turns(count: int) -> dict[str, NDArray[Any]]:
    return {"count": np.array(count, np.int64), "x": X}


@pytest.fixture(scope="session")
def model() -> bytes:
    """Multiplies x by one, ``count`` times."""
    shape = [SIDE, SIDE]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["still_on"]),
            helper.make_node("MatMul", ["before", "one"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, shape),
        ],
        [
            helper.make_tensor_value_info("still_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, shape),
        ],
    )
    one = np.eye(SIDE, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "yes", "x"], ["y"], body=body)],
        "loop",
        [
            helper.make_tensor_value_info("count", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor("one", TensorProto.FLOAT, shape, one.tobytes(), raw=True),
            helper.make_tensor("yes", TensorProto.BOOL, [], [True]),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    serialized: bytes = helper.make_model(
        graph, opset_imports=opset, ir_version=8
    ).SerializeToString()
    return serialized


@pytest.fixture(scope="session")
def network(model: bytes) -> Network:
    return Network(model)


def test_a_network_says_what_it_takes_and_gives(network: Network) -> None:
    assert list(network.inputs) == ["count", "x"]
    assert network.inputs["x"].shape == [64, 64]
    assert network.outputs == ["y"]
    assert network.providers == ["CPUExecutionProvider"]


@pytest.mark.parametrize("outputs", [None, ["y"]])
def test_a_plain_call_runs_to_its_end(network: Network, outputs: Sequence[str] | None) -> None:
    (y,) = network.run(outputs, turns(3))
    assert np.array_equal(y, X)


def test_an_unoptimized_network_gives_the_same(model: bytes) -> None:
    assert np.array_equal(Network(model, optimized=False, threads=2).run(None, turns(3))[0], X)


def test_a_run_for_a_stream_that_is_closed_already_ends_at_once(network: Network) -> None:
    interruption = Interruption()
    interruption.interrupt()
    with interruption.concerns(), pytest.raises(UNRUNNABLE, match="terminate flag"):
        network.run(None, turns(HOURS))


def test_a_run_is_ended_and_the_others_go_on(network: Network) -> None:
    begun = threading.Barrier(3)
    closed, other = Interruption(), Interruption()
    ends: list[object] = []

    def run(interruption: Interruption, count: int) -> None:
        with interruption.concerns():
            begun.wait(5)
            try:
                ends.append(network.run(None, turns(count))[0].sum())
            except UNRUNNABLE:
                ends.append("ended")

    threads = [
        threading.Thread(target=run, args=(closed, HOURS)),
        threading.Thread(target=run, args=(other, 2000)),
    ]
    for thread in threads:
        thread.start()
    begun.wait(5)
    closed.interrupt()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, ends)) == ["4096.0", "ended"]
    assert network.run(None, turns(1))[0].sum() == 4096


class Loops:
    """An engine whose step takes as long as its text says, in turns of the loop."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.begun = threading.Semaphore(0)
        self.ended: list[str] = []

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        try:
            self.begun.release()
            (y,) = self._network.run(None, turns(int(request.text)))
            yield AudioChunk(y.reshape(-1), 4096)
        finally:
            self.ended.append(request.text)

    def voices(self) -> Sequence[Voice]:
        return []

    def close(self) -> None:
        pass


async def seconds(scheduler: Scheduler, count: int) -> float:
    async with aclosing(scheduler.stream(SynthesisRequest(str(count)))) as chunks:
        return sum([chunk.seconds async for chunk in chunks])


async def test_a_barge_in_ends_a_run_and_its_worker_serves_the_next(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = Loops(network)
    scheduler = Scheduler(engine)
    for _ in range(3):
        listening = asyncio.create_task(seconds(scheduler, HOURS))
        assert await asyncio.to_thread(engine.begun.acquire, timeout=5)
        waiting = asyncio.create_task(seconds(scheduler, 1))
        await asyncio.sleep(0)
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        assert await waiting == 1.0  # on the only worker that there is
        engine.begun.acquire()
    assert engine.ended == [str(HOURS), "1"] * 3
    await scheduler.aclose()
    assert [record for record in caplog.records if record.name.startswith("tts_plugins")] == []


async def test_closing_the_scheduler_ends_a_run(network: Network) -> None:
    engine = Loops(network)
    scheduler = Scheduler(engine)
    listening = asyncio.create_task(seconds(scheduler, HOURS))
    assert await asyncio.to_thread(engine.begun.acquire, timeout=5)
    await scheduler.aclose()
    assert engine.ended == [str(HOURS)]
    with pytest.raises(Exception, match="the engine was closed"):
        await listening


@pytest.mark.parametrize(
    "content", [b"", b"<html>404</html>" * 9, b"\0" * 99, b"PK\3\4", "no.onnx"]
)
def test_what_is_no_network_is_an_error(content: bytes | str) -> None:
    with pytest.raises(UNRUNNABLE):
        Network(content)


def test_a_damaged_network_is_an_error_and_prints_nothing(
    model: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    for cut in range(0, len(model) - 300, 997):
        with pytest.raises(UNRUNNABLE):
            Network(model[:cut])
    with pytest.raises(UNRUNNABLE):
        Network(model.replace(b"count", b"c\xff\xffnt"))
    assert capfd.readouterr() == ("", "")


def test_what_does_not_fit_is_an_error(network: Network) -> None:
    with pytest.raises(UNRUNNABLE):
        network.run(None, {"count": np.array(1, np.int64), "x": np.ones((1, 2), np.float32)})
    with pytest.raises(UNRUNNABLE):
        network.run(None, {"count": np.array(1, np.int32), "x": X})


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[ort.SessionOptions]:
    """The options of each session that is made, in order."""
    found: list[ort.SessionOptions] = []
    real = ort.InferenceSession

    def session(model: object, options: ort.SessionOptions, **settings: Any) -> object:
        found.append(options)
        return real(model, options, **settings)

    monkeypatch.setattr(ort, "InferenceSession", session)
    return found


@pytest.mark.parametrize(("settings", "threads"), [({}, 1), ({"threads": 2}, 2)])
def test_a_run_has_the_threads_it_was_given_and_none_of_them_spins(
    model: bytes, given: list[ort.SessionOptions], settings: dict[str, Any], threads: int
) -> None:
    Network(model, **settings)
    (options,) = given
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (threads, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_threads_that_share_a_run_rest_when_it_is_over(
    model: bytes, given: list[ort.SessionOptions]
) -> None:
    Network(model, threads=2)
    (options,) = given
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"


def test_it_is_optimized_unless_that_is_not_wanted(
    model: bytes, given: list[ort.SessionOptions]
) -> None:
    Network(model)
    Network(model, optimized=False)
    assert [options.graph_optimization_level for options in given] == [
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ]
