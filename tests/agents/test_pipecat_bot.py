"""The bot in the browser, visited by a real browser."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import numpy as np
import pytest
import pytest_asyncio

pytest.importorskip("aiortc")
if not os.environ.get("REQUIRE_BROWSER"):
    pytest.importorskip("playwright")

from playwright.async_api import Page, async_playwright, expect

from examples.agents.brains import SCRIPT
from tests.agents.running import Running, free_port
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

Visit = Callable[..., AbstractAsyncContextManager[Page]]


@pytest.fixture(scope="module")
def bot() -> Iterator[str]:
    """The address of the bot, as one command starts it."""
    with Running("pipecat_bot", "--port", str(free_port())) as running:
        yield running.wait_for(r"running on (http://\S+)")[1]


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
    async def visit(address: str, *scripts: str) -> AsyncGenerator[Page, None]:
        async with await browser.new_page() as page:
            page.set_default_timeout(30_000)
            for script in (NOTES, *scripts):
                await page.add_init_script(script)
            await page.goto(address)
            await page.get_by_role("button", name="Connect").click()
            await expect(page.locator("#interrupt")).to_be_enabled()
            yield page

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield visit
        await browser.close()


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


async def test_it_is_heard_and_each_word_lights_up_in_time(bot: str, visit: Visit) -> None:
    async with visit(bot, DEAF) as page:
        assert await remembered(page, 0) == SCRIPT[0]
        assert await shown(page, 0) == SCRIPT[0]
        captions = await page.evaluate("captions")
        levels = np.array(await page.evaluate("levels"))
        assert await page.locator("#state").text_content() == WITHOUT
    texts = [text for _, text in captions]
    words = SCRIPT[0].split()
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert len(texts) > 0.7 * len(words)  # two may come at once, whole sentences may not
    loud = levels[levels[:, 1] > LOUD, 0]
    assert len(loud) > 100
    begins, ends = loud[0], loud[-1]
    # Half a sentence is shown when about half of it has been heard: within a second or so.
    half = next(when for when, text in captions if len(text) > len(SCRIPT[0]) / 2)
    assert abs(half - (begins + ends) / 2) < 1_200
    assert abs(captions[-1][0] - ends) < 1_200


async def test_the_button_silences_it_and_it_remembers_what_was_heard(
    bot: str, visit: Visit
) -> None:
    async with visit(bot, DEAF) as page:
        await page.wait_for_function("captions.at(-1)?.[1].split(' ').length > 3")
        await page.get_by_role("button", name="Interrupt").click()
        heard = await remembered(page, 0)
        assert SCRIPT[0].startswith(heard)
        assert 3 < len(heard.split()) < 12
        assert await shown(page, 0) == heard
        # How long it took stands there once it has been silent for a fifth of a second.
        await page.wait_for_function("silent.textContent.endsWith(' ms')")
        # It then answers what is typed, from the beginning to the end.
        await page.get_by_label("Say something by typing").fill("When does it leave?")
        await page.get_by_role("button", name="Send").click()
        assert await remembered(page, 1) == SCRIPT[1]
        assert await page.locator(".you").all_text_contents() == ["When does it leave?"]
        assert await shown(page, 0) == heard


async def test_two_visitors_each_have_their_own_conversation(bot: str, visit: Visit) -> None:
    async with visit(bot, DEAF) as one, visit(bot, DEAF) as other:
        await other.wait_for_function("captions.length > 3")
        await other.get_by_role("button", name="Interrupt").click()
        assert len(await remembered(other, 0)) < len(SCRIPT[0])
        assert await remembered(one, 0) == SCRIPT[0]


async def test_who_speaks_up_interrupts_it_and_is_answered(bot: str, visit: Visit) -> None:
    async with visit(bot) as page:
        assert await page.locator("#state").text_content() == LISTENING
        heard = await remembered(page, 0)
        assert SCRIPT[0].startswith(heard)
        assert 0 < len(heard) < len(SCRIPT[0])
        assert await remembered(page, 1) == SCRIPT[1]


async def test_ctrl_c_ends_it_while_somebody_listens(visit: Visit) -> None:
    with Running("pipecat_bot", "--port", str(free_port()), TTS="tone") as running:
        address = running.wait_for(r"running on (http://\S+)")[1]
        async with visit(address, DEAF) as page:
            await page.wait_for_function("captions.length > 0")
            ended = running.press_ctrl_c()
            await expect(page.locator("#state")).to_have_text("the bot left")
    assert ended.status == 0
    assert "Traceback" not in ended.output


async def test_a_key_that_lacks_is_named() -> None:
    with Running("pipecat_bot", LLM="openai", OPENAI_API_KEY="") as running:
        ended = running.end()
    assert ended.status == 1
    assert ended.output.splitlines()[-1] == "set OPENAI_API_KEY: LLM=openai needs a key"
    assert "Traceback" not in ended.output
