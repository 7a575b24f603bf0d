"""The bot in the browser, visited by a real browser."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import pytest_asyncio

pytest.importorskip("aiortc")
if not os.environ.get("REQUIRE_BROWSER"):
    pytest.importorskip("playwright")

import uvicorn
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from playwright.async_api import Page, async_playwright, expect

from examples.agents import pipecat_bot
from examples.agents.brains import SCRIPT
from tests.agents.running import Running, free_port
from tts_plugins import Engine
from tts_plugins.audio.wav import wav_file
from tts_plugins.registry import open_engine
from tts_plugins.types import AudioChunk, SynthesisRequest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.wire,
    pytest.mark.skipif(
        not (CHROMIUM or os.environ.get("REQUIRE_BROWSER")), reason="no Chromium on the path"
    ),
]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--autoplay-policy=no-user-gesture-required",
]

NOTES = """
window.captions = [];  // [when, what of the bot's turn has been heard]
window.levels = [];    // [when, how loud it is]
const source = AudioContext.prototype.createMediaStreamSource;
AudioContext.prototype.createMediaStreamSource = function (stream) {
  const node = source.call(this, stream), ear = new AnalyserNode(this, { fftSize: 16384 });
  node.connect(ear);
  window.pitch = () => {  // the loudest frequency
    const bins = new Float32Array(ear.frequencyBinCount);
    ear.getFloatFrequencyData(bins);
    return bins.indexOf(Math.max(...bins)) * this.sampleRate / ear.fftSize;
  };
  return node;
};
addEventListener("DOMContentLoaded", () => {
  new MutationObserver(() => {
    const turn = [...document.querySelectorAll(".bot")].at(-1);
    if (!turn) return;
    const heard = [...turn.children].map(sentence => sentence.firstChild.textContent.trim());
    const text = heard.filter(Boolean).join(" ");
    if (text !== captions.at(-1)?.[1]) captions.push([performance.now(), text]);
  }).observe(document.getElementById("talk"), { subtree: true, childList: true });
  setInterval(() => levels.push([performance.now(), document.getElementById("level").value]), 10);
});
"""
LOUD = 0.01
LISTENING = "listening to you"
WITHOUT = "without a microphone: type"


DEAF = "navigator.mediaDevices.getUserMedia = () => Promise.reject(new Error('refused'));"

PATIENCE = 30_000
"""Milliseconds that anything in the browser may take."""
expect.set_options(timeout=PATIENCE)

Visit = Callable[..., AbstractAsyncContextManager[Page]]


@pytest.fixture(scope="module")
def bot() -> Iterator[str]:
    """The address of the bot, as one command starts it."""
    with Running("pipecat_bot", "--port", str(free_port())) as running:
        yield running.wait_for(r"running on (http://\S+)")[1]


@dataclass
class Tones:
    """The bot that beeps: a process, and its address."""

    process: Running
    address: str


@pytest.fixture(scope="module")
def tones() -> Iterator[Tones]:
    with Running("pipecat_bot", "--port", str(free_port()), TTS="tone") as running:
        yield Tones(running, running.wait_for(r"running on (http://\S+)")[1])


@asynccontextmanager
async def serving() -> AsyncGenerator[str, None]:
    """The bot in this process."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(pipecat_bot.create_app("tone"), port=port, log_level="warning")
    )
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110  it has no event for that
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def visit(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Visit, None]:
    """Visits by a browser whose microphone, if it may be used, hears somebody after 3 s."""
    async with aclosing(open_engine("hibari")) as engine:
        request = SynthesisRequest("Excuse me, when is the next one?")
        said = [chunk async for chunk in engine.stream(request)]
    rate = said[0].sample_rate
    silence = np.zeros(3 * rate, np.float32)
    samples = np.concatenate([silence, *(chunk.samples for chunk in said), silence, silence])
    speech = tmp_path_factory.mktemp("microphone") / "speech.wav"
    speech.write_bytes(wav_file(AudioChunk(samples, rate)))
    flags = [
        *FLAGS,
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={speech}%noloop",
    ]

    @asynccontextmanager
    async def visit(
        address: str, *scripts: str, connect: bool = True
    ) -> AsyncGenerator[Page, None]:
        async with await browser.new_page() as page:
            page.set_default_timeout(PATIENCE)
            for script in (NOTES, *scripts):
                await page.add_init_script(script)
            await page.goto(address)
            if connect:
                await page.get_by_role("button", name="Connect").click()
                await expect(page.locator("#interrupt")).to_be_enabled()
            yield page

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield visit
        await browser.close()


async def interrupt(page: Page, *, words: int) -> None:
    """Press the button as soon as some words have been heard."""
    await expect(page.get_by_role("button", name="Interrupt")).to_be_enabled()
    await page.wait_for_function(
        "words => captions.at(-1)?.[1].split(' ').length >= words"
        " && (document.getElementById('interrupt').click(), true)",
        arg=words,
    )


async def remembered(page: Page, turn: int) -> str:
    """What the bot remembers to have said in a turn, once the turn has ended."""
    line = page.locator(".bot").nth(turn)
    await page.wait_for_function(
        "turn => document.querySelectorAll('.bot')[turn]?.dataset.remembered !== undefined",
        arg=turn,
    )
    return await line.get_attribute("data-remembered") or ""


async def shown(page: Page, turn: int) -> str:
    """What of a turn the page shows as heard."""
    sentences = page.locator(".bot").nth(turn).locator("> span > span:first-child")
    return " ".join(filter(None, map(str.strip, await sentences.all_text_contents())))


async def test_it_is_heard_and_each_word_lights_up_in_time(tones: Tones, visit: Visit) -> None:
    async with visit(tones.address, DEAF) as page:
        await page.wait_for_function("captions.at(-1)?.[1].split(' ').length >= 8")
        assert abs(await page.evaluate("pitch()") - 440) < 4
        assert await page.locator("#state").text_content() == "speaking"
        assert await remembered(page, 0) == SCRIPT[0]
        assert await shown(page, 0) == SCRIPT[0]
        assert await page.locator("#state").text_content() == WITHOUT
        assert await page.locator("mark").count() == 0
        captions = await page.evaluate("captions")
        levels = np.array(await page.evaluate("levels"))
        for id_ in ("connected", "first"):
            assert (
                0 < int((await page.locator(f"#{id_}").inner_text()).removesuffix(" ms")) < 20_000
            )
    words = SCRIPT[0].split()
    texts = [text for _, text in captions if text]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert len(texts) > 0.7 * len(words)  # two may come at once, whole sentences may not
    loud = levels[levels[:, 1] > LOUD, 0]
    starts = np.cumsum([0, *(60 * len(word) for word in words)])  # a beep is 60 ms a letter
    late = [when - loud[0] - starts[len(text.split()) - 1] for when, text in captions if text]
    # The browser keeps more audio back on a busy machine, but then for all words alike.
    assert -1_000 < np.median(late) < 250
    assert max(abs(late - np.median(late))) < 400
    assert abs(loud[-1] - loud[0] - starts[-1]) < 1_000


async def test_the_button_silences_it_and_it_remembers_what_was_heard(
    bot: str, visit: Visit
) -> None:
    async with visit(bot, DEAF) as page:
        await interrupt(page, words=4)
        heard = await remembered(page, 0)
        assert SCRIPT[0].startswith(heard)
        assert 3 < len(heard.split()) < 12
        assert await shown(page, 0) == heard
        # How long it took stands there once it has been silent for a fifth of a second.
        await page.wait_for_function("silent.textContent.endsWith(' ms')")
        # It then answers what is typed, from the beginning to the end.
        await page.get_by_label("Say something by typing").fill("When does it leave?")
        await page.keyboard.press("Enter")
        assert await remembered(page, 1) == SCRIPT[1]
        assert await page.locator(".you").all_text_contents() == ["When does it leave?"]
        assert await shown(page, 0) == heard


async def test_two_visitors_each_have_their_own_conversation(tones: Tones, visit: Visit) -> None:
    async with visit(tones.address, DEAF) as one, visit(tones.address, DEAF) as other:
        await interrupt(other, words=4)
        assert len(await remembered(other, 0)) < len(SCRIPT[0])
        assert await remembered(one, 0) == SCRIPT[0]


async def test_who_speaks_up_interrupts_it_and_is_answered(bot: str, visit: Visit) -> None:
    async with visit(bot) as page:
        assert await page.locator("#state").text_content() == LISTENING
        heard = await remembered(page, 0)
        assert SCRIPT[0].startswith(heard)
        assert 0 < len(heard) < len(SCRIPT[0])
        await page.wait_for_function("captions.at(-1)[1].startsWith('The ferry to the island')")
        assert await page.locator(".you").all_text_contents() == ["(they spoke)"]


@pytest.mark.parametrize("farewell", [True, False])
async def test_who_leaves_is_forgotten(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, *, farewell: bool
) -> None:
    """Without a farewell, the bot learns of it after half a minute without a packet."""
    if not farewell:
        monkeypatch.setattr("aioice.ice.CONSENT_INTERVAL", 0.1)  # seconds, not 5
    conversations: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()

    async def talk(connection: SmallWebRTCConnection, engine: Engine) -> None:
        task = asyncio.current_task()
        assert task
        conversations.put_nowait(task)
        await pipecat_bot_talk(connection, engine)

    pipecat_bot_talk = pipecat_bot.talk
    monkeypatch.setattr(pipecat_bot, "talk", talk)
    async with serving() as url, visit(url, DEAF) as page:
        conversation = await conversations.get()
        await page.wait_for_function("captions.length > 0")
        assert not conversation.done()
        if not farewell:
            await page.evaluate("onpagehide = null")
        await page.close()
        await asyncio.wait([conversation], timeout=10)
        assert conversation.done()


async def test_it_fits_a_phone_and_says_what_went_wrong(visit: Visit) -> None:
    async with visit(pipecat_bot.PAGE.as_uri(), DEAF, connect=False) as page:
        await page.set_viewport_size({"width": 375, "height": 667})
        assert await page.evaluate("document.documentElement.scrollWidth") == 375
        small = await page.evaluate(
            "[...document.querySelectorAll('button, input')].filter(each => each.offsetHeight < 44)"
            ".map(each => each.id)"
        )
        assert small == []
        await page.get_by_role("button", name="Connect").click()
        await expect(page.get_by_role("status")).to_have_text("no connection: Failed to fetch")
        await expect(page.get_by_role("button", name="Connect")).to_be_enabled()


async def test_ctrl_c_ends_it_while_somebody_listens(tones: Tones, visit: Visit) -> None:
    async with visit(tones.address, DEAF) as page:
        await page.wait_for_function("captions.length > 0")
        ended = await asyncio.to_thread(tones.process.press_ctrl_c)
        await expect(page.locator("#state")).to_have_text("the bot left")
    assert ended.status == 0
    assert "Traceback" not in ended.output
