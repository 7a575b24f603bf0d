"""How soon a bot is heard, ours beside what the frameworks come with: the figures of a picture.

    python -m benchmarks.beside server                    in .venv
    .venv-peers/bin/python -m benchmarks.beside piper     where Pipecat's PiperTTSService is

Prints JSON: for each panel of the picture, milliseconds by who speaks. A minute for both.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack

from benchmarks.calls import Call, at_once, livekit_call
from benchmarks.texts import LONG, SENTENCES

ROUNDS = 5

Panels = Mapping[str, Mapping[str, float]]
"""Milliseconds, medians: by panel, and in it by who speaks."""


async def piper() -> Panels:
    """First sound of a Piper voice in this process, by the length of the text."""
    from benchmarks.peers import OURS_IN_PIPECAT, PIPECAT, contenders, our_engine

    called = {OURS_IN_PIPECAT: "ours, in Pipecat", PIPECAT: PIPECAT}
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    async with contenders(*called) as those, AsyncExitStack() as stack:
        calls: dict[str, Call] = {
            called[name]: await stack.enter_async_context(it.call()) for name, it in those.items()
        }
        engine = our_engine("piper")
        calls["ours, in LiveKit"] = await stack.enter_async_context(livekit_call(engine))
        for n in range(ROUNDS + 1):
            for text in (SENTENCES[0], LONG):
                for name, call in calls.items():
                    call.recording.next_turn()
                    await call.say(at_once(text))
                    if n:  # the first is to warm up
                        panel = f"First sound of a Piper voice, {len(text)} characters"
                        times[panel][name].append(call.recording.first_audible * 1000)
        await engine.aclose()
    return _medians(times)


async def server() -> Panels:
    """First frame of a server's audio, after its first byte."""
    from benchmarks.clients import clients
    from benchmarks.remote_first_audio import COLLECTED, LATENCY, SHORT, added
    from benchmarks.speech_server import serving

    panel = "First frame of an OpenAI server's audio, after its first byte"
    called = {
        "Pipecat, ours, openai pcm": "ours, in Pipecat",
        "LiveKit, ours, openai pcm": "ours, in LiveKit",
        "Pipecat's own OpenAI": "Pipecat's OpenAITTSService",
        "LiveKit's own OpenAI, mp3, its default": "LiveKit's openai.TTS (MP3, its default)",
        "LiveKit's own OpenAI, pcm": "LiveKit's openai.TTS (PCM)",
    }
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    measured = [client for client in clients(["openai pcm"]) if client.name in called]
    async with serving(latency=LATENCY) as served, AsyncExitStack() as stack:
        calls = [await stack.enter_async_context(client.open(served.url)) for client in measured]
        for n in range(2 * ROUNDS + 1):
            for client, call in zip(measured, calls, strict=True):
                milliseconds = await added(served, call, COLLECTED if client.collects else SHORT)
                if n:
                    times[panel][called[client.name]].append(milliseconds)
    return _medians(times)


def _medians(times: Mapping[str, Mapping[str, list[float]]]) -> Panels:
    return {
        panel: {name: round(statistics.median(each), 1) for name, each in bars.items()}
        for panel, bars in times.items()
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run({"piper": piper, "server": server}[sys.argv[1]]())))
