"""The page at /, in a real browser that is driven from here."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from tests.hearing import pitch
from tests.server.cloner import Mimic, recording
from tests.server.live import live
from tests.servers import Answer, Call, Line, Server, by_path, serving
from tts_plugins.audio.pcm import from_s16
from tts_plugins.dialects.framing import decode
from tts_plugins.dialects.native import ChunkLines
from tts_plugins.types import AudioChunk, SynthesisRequest, Voice, Word

if not os.environ.get("REQUIRE_BROWSER"):
    pytest.importorskip("playwright")

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

EVERYTHING = bool(os.environ.get("REQUIRE_BROWSER"))
"""Whether a browser that is missing is an error, not a reason to skip."""

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not (CHROMIUM or EVERYTHING), reason="no Chromium on the path"),
]

RATE = 24_000

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--host-resolver-rules=MAP voices.example 127.0.0.1",
]

TAP = """
window.blocks = [];
window.lit = [];
window.capturing = false;
const own = Object.getOwnPropertyDescriptor(BaseAudioContext.prototype, "audioWorklet");
window.__tap = context => {
  const into = new GainNode(context);
  into.connect(context.destination);
  window.context = context;
  const worklet = own?.get.call(context);
  if (worklet) {
    const code = `registerProcessor("tap", class extends AudioWorkletProcessor {
      process([[heard]]) {
        // While the page changes its graph, which takes long on a busy machine, Chromium renders
        // on but leaves currentFrame as it was.
        this.frame = Math.max(this.frame + 128 || 0, currentFrame);
        if (heard) this.port.postMessage({ frame: this.frame, heard });
        return true;
      }
    });`;
    const module = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    worklet.addModule(module).then(() => {
      // With an output that leads somewhere: without, Chromium may leave it out for a moment.
      const tap = new AudioWorkletNode(context, "tap");
      tap.port.onmessage = ({ data }) => blocks.push(data);
      into.connect(tap).connect(context.destination);
      window.capturing = true;
    });
  } else {
    const tap = context.createScriptProcessor(4096, 1, 1);
    let frame = 0;
    tap.onaudioprocess = ({ inputBuffer }) => {
      blocks.push({ frame, heard: inputBuffer.getChannelData(0).slice() });
      frame += 4096;
    };
    into.connect(tap).connect(context.destination);
    window.capturing = true;
  }
  return into;
};
addEventListener("DOMContentLoaded", () => {
  new MutationObserver(changes => {
    for (const { target } of changes) {
      if (target.classList?.contains("now")) {
        const latency = context.outputLatency || context.baseLatency;
        lit.push([target.textContent, context.currentTime - latency]);
      }
    }
  }).observe(document.getElementById("spoken"), { subtree: true, attributeFilter: ["class"] });
});
"""
"""Hears what the page plays, frame for frame, and notes when it lights up a word."""


@dataclass
class Desk:
    """The page, and what was heard and told on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """What the browser logged, other than that a server refused."""

    def log(self, entry: ConsoleMessage) -> None:
        if "ScriptProcessorNode is deprecated" not in entry.text:  # that's the tap's
            self.complaints.append(entry.text)

    async def ready(self) -> None:
        """Make the first gesture, and wait until all that sounds is heard."""
        await self.page.locator("h1").click()
        await self.until("window.capturing")

    async def until(self, condition: str) -> None:
        """Wait in the page: Playwright's own waiting is stopped by the page's policy."""
        await self.page.evaluate(
            "new Promise(resolve => { const look = () => "
            f"({condition}) ? resolve() : setTimeout(look, 5); look(); }})"
        )

    async def speak(self, text: str) -> None:
        await self.page.get_by_label("Text", exact=True).fill(text)
        await self.page.get_by_role("button", name="Speak").click()

    async def status(self, told: str) -> None:
        await expect(self.page.get_by_role("status")).to_have_text(told, timeout=20_000)

    async def measured(self, label: str) -> str:
        return await self.page.locator("dl > div", has_text=label).locator("dd").inner_text()

    async def heard(self, enough: int) -> tuple[float, NDArray[np.int32]]:
        """When the first frame sounded, by the context's clock, and all frames since as s16."""
        await self.until(
            f"blocks.reduce((sum, b) => sum + b.heard.filter(s => s).length, 0) >= {enough}"
        )
        heard = await self.samples()
        whole = np.rint(heard).astype(np.int32)
        np.testing.assert_allclose(whole, heard, atol=1e-6, err_msg="not as sent")
        first = int(np.flatnonzero(whole)[0])
        return first / RATE, np.trim_zeros(whole)

    async def samples(self) -> NDArray[np.float64]:
        """All frames since the context began; 32,768 is full scale."""
        blocks = await self.page.evaluate(
            "blocks.map(b => [b.frame, b.heard.map(s => s * 32768).join()])"
        )
        parts = [(frame, np.array(joined.split(","), float)) for frame, joined in blocks]
        heard = np.zeros(max(frame + len(part) for frame, part in parts))
        for frame, part in parts:
            heard[frame : frame + len(part)] = part
        return heard


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser, None]:
    assert CHROMIUM, "no Chromium on the path"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser) -> AsyncGenerator[BrowserContext, None]:
    context = await browser.new_context()
    await context.add_init_script(TAP)
    yield context
    await context.close()


async def sit_down(visit: BrowserContext, url: str) -> Desk:
    desk = Desk(await visit.new_page())
    desk.page.on("pageerror", lambda error: desk.complaints.append(str(error)))
    desk.page.on("console", desk.log)
    await desk.page.goto(url)
    await expect(desk.page.get_by_label("Voice")).to_contain_text("Default")
    await desk.ready()
    return desk


def noise(seconds: float, seed: int = 1) -> NDArray[np.int16]:
    """Samples of which none is zero, so that each is seen to be played."""
    some = np.random.default_rng(seed).integers(1, 6000, round(seconds * RATE))
    return (some * np.where(np.arange(len(some)) % 2, 1, -1)).astype(np.int16)


def chunk(samples: NDArray[np.int16], *words: Word) -> bytes:
    return ChunkLines().push(AudioChunk(from_s16(samples.tobytes()), RATE, words))


def word(text: str, offset: int, start: float, *, exact: bool = True) -> Word:
    return Word(text, offset, start, start + 0.2, exact)


@asynccontextmanager
async def studio(speech: Answer, **more: Answer) -> AsyncGenerator[Server, None]:
    """A server with the page, one engine that clones, and ``speech`` to answer with."""
    async with live() as real, real.client.get(real.url) as reply:
        shown, policy = await reply.read(), reply.headers["content-security-policy"]

    async def page(line: Line, call: Call) -> None:
        line.body(200, shown, content_type="text/html", content_security_policy=policy)

    async def engines(line: Line, call: Call) -> None:
        one = {"name": "one", "default": True, "clones": True, "sample_rate": RATE}
        line.json(200, {"engines": [one]})

    async def voices(line: Line, call: Call) -> None:
        line.json(200, {"voices": [asdict(Voice(name, "en-US")) for name in ("anna", "ben")]})

    answers: dict[str, Answer] = {
        "GET /": page,
        "GET /api/engines": engines,
        "GET /api/voices": voices,
        "POST /api/speech": speech,
    }
    async with serving(by_path({**answers, **more})) as server:
        yield server


def saying(*chunks: bytes) -> Answer:
    async def speech(line: Line, call: Call) -> None:
        line.head(content_type="application/x-ndjson")
        for each in chunks:
            await line.chunk(each)
        line.end()

    return speech


@pytest.mark.parametrize("host", ["127.0.0.1", "voices.example"], ids=["worklet", "buffers"])
async def test_every_sample_that_was_sent_is_played_once(visit: BrowserContext, host: str) -> None:
    sent = noise(2.5)
    parts = np.split(sent, [24_000, 24_001, 26_000, 40_000])
    async with studio(saying(*map(chunk, parts))) as server:
        desk = await sit_down(visit, server.url.replace("127.0.0.1", host))
        worklet = await desk.page.evaluate("context.audioWorklet !== undefined")
        assert worklet == (host == "127.0.0.1")
        await desk.speak("Whatever.")
        await desk.status("Done")
        _, heard = await desk.heard(len(sent))
    np.testing.assert_array_equal(heard, sent)
    assert await desk.measured("Gaps") == "0"
    assert await desk.measured("Audio") == "2.50 s"
    assert await desk.measured("Sample rate") == "24 kHz"
    assert desk.complaints == []


@pytest.mark.parametrize("host", ["127.0.0.1", "voices.example"], ids=["worklet", "buffers"])
async def test_a_stall_of_the_network_is_a_gap_that_is_counted(
    visit: BrowserContext, host: str
) -> None:
    before, after = noise(1.0), noise(0.4)
    dry = asyncio.Event()

    async def speech(line: Line, call: Call) -> None:
        line.head()
        await line.chunk(chunk(before))
        await dry.wait()
        await line.chunk(chunk(after))
        line.end()

    async with studio(speech) as server:
        desk = await sit_down(visit, server.url.replace("127.0.0.1", host))
        await desk.speak("Whatever.")
        await desk.status("Speaking")
        await desk.status("Waiting")
        dry.set()
        await desk.status("Done")
        _, heard = await desk.heard(len(before) + len(after))
    gap = len(heard) - len(before) - len(after)
    np.testing.assert_array_equal(heard[: len(before)], before)
    np.testing.assert_array_equal(heard[len(before) + gap :], after)
    count, milliseconds, _ = (await desk.measured("Gaps")).split()
    assert count == "1"
    assert abs(int(milliseconds) - gap / RATE * 1000) <= 1


async def test_a_browser_that_refuses_the_rate_plays_the_same_pitch(visit: BrowserContext) -> None:
    await visit.add_init_script("""
        AudioContext = class extends AudioContext {
          constructor(options) {
            if (options) throw new DOMException("no such rate", "NotSupportedError");
            super();
          }
        };
    """)
    tone = (8_000 * np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)).astype(np.int16)
    async with studio(saying(*map(chunk, np.split(tone, [5_000, 5_001])))) as server:
        desk = await sit_down(visit, server.url)
        rate = await desk.page.evaluate("context.sampleRate")
        assert rate != RATE
        await desk.speak("Whatever.")
        await desk.status("Done")
        heard = await desk.samples()
    loud = np.flatnonzero(np.abs(heard) > 100)
    middle = heard[loud[0] + 200 : loud[-1] - 200]
    t = np.arange(len(middle)) / rate
    waves = np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 440 * t)], axis=1)
    rest = middle - waves @ np.linalg.lstsq(waves, middle)[0]
    assert np.abs(rest).max() < 8


async def test_words_light_up_when_they_are_heard(visit: BrowserContext) -> None:
    """Offsets count code points: a clef is one of them, and two places of a script's string."""
    text = "Played in \U0001d11e: one, two and three."
    words = [
        word("Played", 0, 0.05),
        word("one", 13, 0.5),
        word("two", 18, 0.9, exact=False),
        word("three", 26, 1.4, exact=False),
    ]
    parts = np.split(noise(2.0), 4)
    chunks = [chunk(part, each) for part, each in zip(parts, words, strict=True)]
    async with studio(saying(*chunks)) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak(text)
        await desk.status("Done")
        began, _ = await desk.heard(48_000)
        lit = await desk.page.evaluate("lit")
    assert [told for told, _ in lit] == ["Played", "one", "two", "three"]
    late = [at - began - each.start for (_, at), each in zip(lit, words, strict=True)]
    assert min(late) > -0.001
    assert median(late) < 0.05 + 128 / RATE
    assert max(late) < 0.2, "later than a busy machine explains"
    guessed = await desk.page.locator(".guess").all_inner_texts()
    assert guessed == ["two", "three"]
    await expect(desk.page.get_by_text("times are estimated")).to_be_visible()
    await expect(desk.page.locator("#spoken")).to_contain_text(text)


@pytest.mark.parametrize("mode", ["worklet", "buffers"])
@pytest.mark.parametrize("name", ["tone", "hibari"])
async def test_an_engine_is_heard_whole_and_its_words_in_time(
    visit: BrowserContext, name: str, mode: str
) -> None:
    await visit.add_init_script("""
        const fetched = fetch;
        window.fetch = async (path, init) => {
          const reply = await fetched(path, init);
          if (path.endsWith("api/speech")) window.sent = reply.clone().text();
          return reply;
        };
    """)
    if mode == "buffers":
        await visit.add_init_script("delete BaseAudioContext.prototype.audioWorklet")
    async with live(name) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("Good evening. Your table is booked for half past seven.")
        await desk.status("Done")
        body = await desk.page.evaluate("sent")
        chunks = [json.loads(line) for line in body.splitlines()]
        sent = np.concatenate([np.frombuffer(decode(each.get("audio")), "<i2") for each in chunks])
        began, heard = await desk.heard(int(np.count_nonzero(sent)))
        lit = await desk.page.evaluate("lit")
    silence = int(np.flatnonzero(sent)[0])
    np.testing.assert_array_equal(heard, np.trim_zeros(sent))
    assert await desk.measured("Gaps") == "0"
    words = [each for chunk in chunks for each in chunk.get("words", ())]
    assert [told for told, _ in lit] == [each["text"] for each in words]
    starts = [began - silence / RATE + each["start"] for each in words]
    late = [at - start for (_, at), start in zip(lit, starts, strict=True)]
    assert median(late) < 0.05 + 128 / RATE
    assert -0.001 < min(late) <= max(late) < 0.2, "later than a busy machine explains"
    print(
        f"{len(heard)} of {len(np.trim_zeros(sent))} samples heard; words late by"
        f" {1000 * median(late):.0f} ms, at most {1000 * max(late):.0f} ms"
    )
    assert desk.complaints == []


async def test_what_is_not_a_word_of_the_text_does_no_harm(visit: BrowserContext) -> None:
    strange = [
        word("b", 1, 0.0),
        word("a", 0, 0.1),
        word("", 1, 0.1),
        word("beyond", 900, 0.2),
        word("<img src=x>", 2, 0.3),
    ]
    async with studio(saying(chunk(noise(0.4), *strange))) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("ab<img src=x>")
        await desk.status("Done")
        assert [told for told, _ in await desk.page.evaluate("lit")] == ["b", "<img src=x>"]
    assert desk.complaints == []


class Endless:
    """Says five seconds of noise, and then thinks about what else there is to say."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.closed_at = 0.0

    async def stream(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        try:
            yield AudioChunk(from_s16(noise(5.0).tobytes()), RATE)
            await asyncio.Event().wait()
        finally:
            self.closed_at = time.time()
            self.closed.set()

    async def voices(self) -> Sequence[Voice]:
        return [Voice("endless", "und")]

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("way", ["Stop", "Escape"])
async def test_stop_silences_at_once_and_stops_the_engine(visit: BrowserContext, way: str) -> None:
    engine = Endless()
    async with live(engine) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("Whatever.")
        await desk.status("Speaking")
        await desk.page.evaluate("""
            for (const kind of ["click", "keydown"]) {
              addEventListener(kind, () => {
                window.stopped = [Date.now() / 1000, context.currentTime];
              }, { capture: true });
            }
        """)
        if way == "Stop":
            await desk.page.get_by_role("button", name="Stop").click()
        else:
            await desk.page.keyboard.press("Escape")
        await desk.status("Stopped")
        await asyncio.wait_for(engine.closed.wait(), 5)
        wall, clock = await desk.page.evaluate("stopped")
        await desk.until("context.currentTime > stopped[1] + 0.2")
        heard = await desk.samples()
    assert engine.closed_at - wall < 0.1
    assert np.flatnonzero(heard)[-1] / RATE - clock < 0.06
    assert desk.complaints == []


async def test_a_new_reply_stops_the_old_one(visit: BrowserContext) -> None:
    left = asyncio.Event()

    async def speech(line: Line, call: Call) -> None:
        line.head()
        if call.json["text"] == "Old.":
            await line.chunk(chunk(noise(5.0)))
            await line.left.wait()
            left.set()
        else:
            await line.chunk(chunk(noise(0.3)))
            line.end()

    async with studio(speech) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("Old.")
        await desk.status("Speaking")
        await desk.speak("New.")
        await asyncio.wait_for(left.wait(), 5)
        await desk.status("Done")
    assert await desk.measured("Audio") == "0.30 s"


async def test_all_is_done_with_the_keyboard(visit: BrowserContext) -> None:
    async with studio(saying(chunk(noise(0.3)))) as server:
        desk = await sit_down(visit, server.url)
        press = desk.page.keyboard.press
        for name in ("Text", "Voice", "Speed", "Format", "Speak", "Stop", "Add"):
            await press("Tab")
            called, ring = await desk.page.evaluate("""
                [(document.activeElement.labels?.[0] ?? document.activeElement).innerText,
                  getComputedStyle(document.activeElement).outlineStyle]
            """)
            assert (called.split()[0].removesuffix("Ctrl").removesuffix("Esc"), ring) == (
                name,
                "solid",
            )
        await desk.page.get_by_label("Text", exact=True).focus()
        await press("Control+A")
        await desk.page.keyboard.type("Typed.")
        await press("Tab")
        await desk.page.keyboard.type("ben")
        await press("Tab")
        await press("ArrowRight")
        await press("Control+Enter")
        await desk.status("Done")
        (call,) = [call for call in server.calls if call.method == "POST"]
    assert call.json == {"text": "Typed.", "voice": "ben", "speed": 1.05, "model": "one"}


@pytest.mark.parametrize("late", [False, True], ids=["before", "after the start"])
async def test_the_server_s_own_words_say_what_went_wrong(
    visit: BrowserContext, late: bool
) -> None:
    told = {"error": {"kind": "VoiceNotFoundError", "message": "no voice 'bob'; available: anna"}}

    async def speech(line: Line, call: Call) -> None:
        if not late:
            line.json(404, told)
            return
        line.head()
        await line.chunk(chunk(noise(0.3)))
        await line.chunk(json.dumps(told).encode() + b"\n")
        line.end()

    async with studio(speech) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("Whatever.")
        await desk.status("Failed")
        alert = desk.page.get_by_role("alert").filter(has_text="bob")
        await expect(alert).to_have_text("no voice 'bob'; available: anna")
        if late:
            _, heard = await desk.heard(7_200)
            np.testing.assert_array_equal(heard, noise(0.3))


async def test_a_reply_that_breaks_off_is_played_as_far_as_it_came(visit: BrowserContext) -> None:
    """What it has not read yet when the connection breaks, a browser forgets."""
    speaking = asyncio.Event()

    async def speech(line: Line, call: Call) -> None:
        line.head()
        await line.chunk(chunk(noise(1.0)))
        await speaking.wait()
        line.close()

    async with studio(speech) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak("Whatever.")
        await desk.status("Speaking")
        speaking.set()
        await desk.status("Failed")
        await expect(desk.page.locator("#message")).to_contain_text("broke off")
        _, heard = await desk.heard(24_000)
    np.testing.assert_array_equal(heard, noise(1.0))


async def test_nothing_is_asked_of_the_server_without_a_text(visit: BrowserContext) -> None:
    async with studio(saying()) as server:
        desk = await sit_down(visit, server.url)
        await desk.speak(" ")
        await expect(desk.page.locator("#message")).to_have_text("There is no text to speak.")
        assert server.asked == 0


async def test_a_key_is_asked_for_once_and_kept_no_longer_than_the_tab(
    visit: BrowserContext,
) -> None:
    def locked(answer: Answer) -> Answer:
        async def guarded(line: Line, call: Call) -> None:
            if call.headers.get("authorization") == "Bearer sesame":
                await answer(line, call)
            else:
                line.json(401, {"error": {"kind": "Refused", "message": "a key is needed"}})

        return guarded

    async with studio(saying(chunk(noise(0.3)))) as server:
        free = server.answer

        async def answer(line: Line, call: Call) -> None:
            await (free if call.path == "/" else locked(free))(line, call)

        server.answer = answer
        desk = Desk(await visit.new_page())
        await desk.page.goto(server.url)
        await expect(desk.page.get_by_text("a key is needed")).to_be_visible()
        await desk.page.get_by_label("Key").fill("wrong")
        await desk.page.keyboard.press("Enter")
        await expect(desk.page.get_by_label("Key")).to_have_value("")
        await desk.page.get_by_label("Key").fill("sesame")
        await desk.page.keyboard.press("Enter")
        await expect(desk.page.get_by_label("Key")).to_be_hidden()
        await expect(desk.page.get_by_label("Voice")).to_contain_text("anna")
        await desk.ready()
        await desk.speak("Whatever.")
        await desk.status("Done")
        assert await desk.page.evaluate("[sessionStorage.getItem('key'), localStorage.length]") == [
            "sesame",
            0,
        ]
        assert await visit.cookies() == []


async def test_a_recording_becomes_a_voice(visit: BrowserContext, tmp_path: Path) -> None:
    engine, clip = Mimic(), tmp_path / "clip.wav"
    async with live(engine) as server:
        desk = await sit_down(visit, server.url)
        await desk.page.get_by_text("Add a voice").click()
        await desk.page.get_by_label("Name").fill("cleo")
        await desk.page.get_by_label("What is said").fill("Hello there.")
        add = desk.page.get_by_role("button", name="Add voice")
        clip.write_bytes(b"no audio")
        await desk.page.get_by_label("Recording").set_input_files(clip)
        await add.click()
        await expect(desk.page.locator("#enrolled")).to_contain_text("can't be read")
        clip.write_bytes(recording(330, seconds=4.0))
        await desk.page.get_by_label("Recording").set_input_files(clip)
        await add.click()
        voice = desk.page.get_by_label("Voice")
        await expect(voice).to_contain_text("cleo")
        await expect(voice).to_be_focused()
        await desk.speak("Whatever.")
        await desk.status("Done")
        assert abs(pitch(await desk.samples(), RATE) - 330) < 1
    assert [said for _, _, said in engine.clips] == ["Hello there."]


async def test_a_file_is_saved_in_the_chosen_format(visit: BrowserContext, tmp_path: Path) -> None:
    async def speech(line: Line, call: Call) -> None:
        line.body(200, b"ID3" * 1000, content_type="audio/mpeg")

    async with studio(saying(), **{"POST /v1/audio/speech": speech}) as server:
        desk = await sit_down(visit, server.url)
        await desk.page.get_by_label("Format").select_option("MP3 file")
        async with desk.page.expect_download() as saving:
            await desk.page.get_by_label("Text", exact=True).fill("Whatever.")
            await desk.page.get_by_role("button", name="Save file").click()
        saved = await saving.value
        assert saved.suggested_filename == "speech.mp3"
        await saved.save_as(tmp_path / "speech.mp3")
        assert (tmp_path / "speech.mp3").read_bytes() == b"ID3" * 1000
        await desk.status("Done")
        await expect(desk.page.locator("#message")).to_contain_text("speech.mp3: 3.0 kB in ")
    assert server.calls[-1].json == {
        "input": "Whatever.",
        "response_format": "mp3",
        "model": "one",
        "speed": 1,
    }
    assert desk.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_a_finger(browser: Browser, scheme: str) -> None:
    context = await browser.new_context(
        viewport={"width": 375, "height": 667},
        has_touch=True,
        is_mobile=True,
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    await context.add_init_script(TAP)
    async with studio(saying(chunk(noise(0.3)))) as server:
        desk = await sit_down(context, server.url)
        await desk.page.get_by_text("Add a voice").click()
        await desk.speak("A" * 300)
        await desk.status("Done")
        assert await desk.page.evaluate("document.documentElement.scrollWidth") == 375
        small = await desk.page.evaluate("""
            [...document.querySelectorAll("button, select, input, textarea, summary")]
              .filter(each => each.checkVisibility() && each.getBoundingClientRect().height < 44)
              .map(each => each.id || each.innerText)
        """)
        assert small == []
    await context.close()
