"""Pages with a microphone or a motion sensor: the same integers as in Python, and what they recognise."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import soundfile
import soxr
from browser import COMMAND, Browser, Page, find, started
from missing import skip_or_fail
from play_support import folder_server, serving

import rudel
from rudel.backend import keras_on_jax
from rudel.data.motion import read_folder as motions_of
from rudel.data.sound.recording import decode
from rudel.errors import ServeError
from rudel.features import LogMel
from rudel.features.layer import Features
from rudel.play.listener import Listener, listener_of
from rudel.play.module import PageModule, missing_packages
from rudel.play.opening import newest_run, open_run
from rudel.play.play_server import PlayServer
from rudel.runs.run_directory import RunDirectory

WORDS, SPOKEN = ("6", "7"), ("7", "6", "6", "7")
MOVEMENTS = 4  # of each kind
LISTENER = """(async () => {
  const about = await (await fetch("model.json")).json();
  const module = await import("./" + about.module);
  const { Listener, Mover } = await import("./recogniser.js");
  const features = about.module.replace(".js", "_features");
"""


@pytest.fixture(scope="module")
def words(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One speaker's recordings of three words; the first five of each are not learned from."""
    root = tmp_path_factory.mktemp("words")
    for word in (*WORDS, "1"):
        (root / "learn" / word).mkdir(parents=True)
        (root / "rest" / word).mkdir(parents=True)
        recordings = sorted((shared_data / "spoken-digits" / word).glob("*_george_*.wav"))
        for number, path in enumerate(recordings):
            shutil.copy(path, root / ("rest" if number < 5 else "learn") / word / path.name)
    return root


@pytest.fixture(scope="module")
def keywords(words: Path, optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "ears"
    options = {"net": "tiny", "words": ",".join(WORDS)}
    with optimized():
        rudel.train_recipe("keywords", data=str(words / "learn"), options=options, epochs=28, batch_size=16, run=run)
    return run


@pytest.fixture(scope="module")
def ears(keywords: Path, exporting: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    with exporting():
        return rudel.export(keywords, "page", tmp_path_factory.mktemp("pages") / "ears").path


@pytest.fixture(scope="module")
def hand(gestures: Path, exporting: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    with exporting():
        return rudel.export(gestures, "page", tmp_path_factory.mktemp("pages") / "hand").path


@pytest.fixture(scope="module")
def microphone(words: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WAV file in near silence, with words that the model has not learned from."""
    random, parts = np.random.default_rng(0), [np.zeros(24_000)]
    recordings = {word: sorted((words / "rest" / word).iterdir()) for word in WORDS}
    for word in SPOKEN:
        samples = decode(recordings[word].pop().read_bytes(), 8000)
        parts += [samples / 32768, np.zeros(16_000)]
    sound = soxr.resample(np.concatenate(parts), 8000, 48_000)
    path = tmp_path_factory.mktemp("microphone") / "sound.wav"
    soundfile.write(path, sound + random.normal(0, 1e-4, sound.shape), 48_000, subtype="PCM_16")
    return path


@pytest.fixture(scope="module")
def listening(microphone: Path) -> Iterator[Browser]:
    """A browser whose microphone is that file."""
    program = find() or skip_or_fail(f"There is no browser: {COMMAND}")
    fake = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
    file = f"--use-file-for-fake-audio-capture={microphone}%noloop"
    with started(program, *fake, file, "--autoplay-policy=no-user-gesture-required") as browser:
        yield browser


def log_of(page: Page) -> list[str]:
    return page.value("[...document.querySelectorAll('#log li')].map((one) => one.textContent).reverse()")


def test_the_features_of_the_page_are_those_of_numpy(ears: Path, words: Path, keywords: Path, browser: Browser) -> None:
    player = open_run(keywords)
    assert isinstance(player, Listener)
    features: Any = player.features
    recordings = [decode(path.read_bytes(), features.rate) for path in sorted((words / "rest").rglob("*.wav"))]
    sound = np.concatenate([samples[: len(samples) // features.hop * features.hop] for samples in recordings])
    given = base64.b64encode(sound.tobytes()).decode()
    script = f"""{LISTENER}
      const bytes = await (await fetch(features + ".wasm")).arrayBuffer();
      const {{ instance }} = await WebAssembly.instantiate(bytes);
      const listener = new Listener(about, await module.load(), instance.exports);
      const sound = new Int16Array(Uint8Array.from(atob("{given}"), (letter) => letter.charCodeAt(0)).buffer);
      const found = [];
      for (let i = 0; i < sound.length; i += about.hop) found.push([...listener.frame(sound.slice(i, i + about.hop))]);
      return found;
    }})()"""
    with serving(folder_server(ears)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        found = np.array(page.value(script))
        assert page.problems == []
    np.testing.assert_array_equal(found, features(sound))


def test_a_word_is_found_once_however_short_the_rest_after_it(ears: Path, microphone: Path, browser: Browser) -> None:
    given = base64.b64encode(decode(microphone.read_bytes(), 8000).tobytes()).decode()
    script = f"""{LISTENER}
      const bytes = await (await fetch(features + ".wasm")).arrayBuffer();
      const {{ instance }} = await WebAssembly.instantiate(bytes);
      const listener = new Listener({{ ...about, resting: 1 }}, await module.load(), instance.exports);
      const sound = new Int16Array(Uint8Array.from(atob("{given}"), (letter) => letter.charCodeAt(0)).buffer);
      const found = [];
      for (let i = 0; i + about.hop <= sound.length; i += about.hop) {{
        const answer = listener.push(sound.slice(i, i + about.hop));
        if (answer?.found >= 0) found.push(about.classes[answer.found]);
      }}
      return found;
    }})()"""
    with serving(folder_server(ears)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        assert page.value(script) == list(SPOKEN)
        assert page.problems == []


def test_a_word_that_is_said_again_a_second_later_is_found_again(ears: Path, browser: Browser) -> None:
    script = f"""{LISTENER}
      const bytes = await (await fetch(features + ".wasm")).arrayBuffer();
      const {{ instance }} = await WebAssembly.instantiate(bytes);
      const other = about.passedOver.findIndex((passed) => passed);
      let runs = 0;
      const seen = () => [6, 18].some((begin) => runs >= begin && runs < begin + 6) ? 0 : other;
      const model = {{ invoke: () => Int8Array.from(about.classes, (_, i) => i === seen() ? 127 : -128) }};
      const listener = new Listener({{ ...about, every: 1, resting: 12 }}, model, instance.exports);
      const found = [];
      for (; runs < 40; runs++) if (listener.push(new Int16Array(about.hop)).found >= 0) found.push(runs);
      return found;
    }})()"""
    with serving(folder_server(ears)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        first, second = page.value(script)
        assert second - first == 13
        assert page.problems == []


def hear_all(page: Page, address: str) -> None:
    """Has all words said, and again where a computer too busy to fetch them from its microphone in time lost some."""
    for last in (False, False, True):
        page.open(address)
        page.until("document.body.dataset.ready")
        page.value("document.getElementById('start').click()")
        page.until("document.body.dataset.running")
        with contextlib.nullcontext() if last else contextlib.suppress(AssertionError):
            page.until(f"document.querySelectorAll('#log li').length >= {len(SPOKEN)}", 60)
            return


def test_words_from_the_microphone_are_recognised(ears: Path, listening: Browser) -> None:
    with serving(folder_server(ears)) as address, listening.page() as page:
        hear_all(page, address)
        assert log_of(page) == list(SPOKEN)
        painted = "document.getElementById('seen').getContext('2d').getImageData(0, 0, 300, 20).data"
        assert page.value(f"new Set({painted}).size") > 20
        assert page.problems == []
        assert {url[: len(address)] for url in page.requested} == {address}


def test_a_microphone_that_cannot_be_used_is_let_go(ears: Path, listening: Browser, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ears, tmp_path / "page"))
    (folder / "microphone.js").unlink()
    said = "document.getElementById('problem').textContent"
    with serving(folder_server(folder)) as address, listening.page(address) as page:
        page.until("document.body.dataset.ready")
        page.value("""(() => {
          const [devices, tracks] = [navigator.mediaDevices, []];
          const given = devices.getUserMedia.bind(devices);
          devices.getUserMedia = async (wanted) => {
            const stream = await given(wanted);
            tracks.push(...stream.getTracks());
            return stream;
          };
          globalThis.tracks = tracks;
        })()""")
        page.value("document.getElementById('start').click()")
        page.until(f"{said}.startsWith('The microphone could not be started (')")
        assert page.value("tracks.map((track) => track.readyState)") == ["ended"]
        assert not page.value("document.getElementById('start').disabled")


def test_a_page_that_may_not_use_the_microphone_says_so(ears: Path) -> None:
    said = "document.getElementById('problem').textContent"
    program = find() or skip_or_fail(f"There is no browser: {COMMAND}")
    with (
        started(program, "--use-fake-device-for-media-stream") as browser,
        serving(folder_server(ears)) as address,
        browser.page(address) as page,
    ):
        page.until("document.body.dataset.ready")
        profile = page.ask("Target.getTargetInfo")["targetInfo"]["browserContextId"]
        refused = {"permission": {"name": "microphone"}, "setting": "denied", "browserContextId": profile}
        browser.ask("Browser.setPermission", **refused)
        page.value("document.getElementById('start').click()")
        page.until(
            f"{said} === 'The microphone cannot be used: allow this page to use it, and press the button again.'"
        )


def without_a_network(page: Page, folder: Path) -> None:
    """Opens a page, and again when its server is gone."""
    with serving(folder_server(folder)) as address:
        page.open(address)
        page.until("document.body.dataset.ready && navigator.serviceWorker.ready.then(() => true)")
        page.until("navigator.serviceWorker.controller !== null")
    page.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    page.value("document.body.dataset.ready = ''")
    page.open(address)
    page.until("document.body.dataset.ready === 'true'")
    page.value("document.getElementById('start').click()")
    page.until("document.body.dataset.running")


def test_without_a_network_it_listens(ears: Path, listening: Browser) -> None:
    with listening.page() as page:
        without_a_network(page, ears)
        page.until("[...document.querySelectorAll('progress')].some((bar) => bar.value > 0)")
        assert page.problems == []


def test_without_a_network_it_knows_movements(hand: Path, shared_data: Path, browser: Browser) -> None:
    with browser.page() as page:
        without_a_network(page, hand)
        kinds, rows = moves(shared_data)
        page.value(moved(rows))
        page.until(f"document.querySelectorAll('#log li').length === {len(kinds)}")
        assert np.mean([a == b for a, b in zip(log_of(page), kinds, strict=True)]) >= 0.9
        assert page.problems == []


def test_rows_become_the_integers_of_numpy(hand: Path, gestures: Path, shared_data: Path, browser: Browser) -> None:
    player = open_run(gestures)
    assert isinstance(player, Listener)
    rows = motions_of(str(shared_data / "gestures"), 119).x.reshape(-1, 6)[::7]
    script = f"""{LISTENER}
      const columns = await (await fetch(features + ".json")).json();
      const mover = new Mover(about, await module.load(), columns, module.inputs[0]);
      const port = module.inputs[0];
      const otherwise = new Mover({{ ...about, places: [3, 4, 5, 0, 1, 2] }}, null, columns, port);
      const found = [mover, otherwise].map((one) => {rows.tolist()}.map((row) => [...one.numbers(row)]));
      return [port.scale, port.zeroPoint, ...found];
    }})()"""
    with serving(folder_server(hand)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        scale, zero_point, *found = page.value(script)
    for given, numbers in zip((rows, rows[:, [3, 4, 5, 0, 1, 2]]), found, strict=True):
        wanted = np.clip(np.rint(player.features(given) / np.float32(scale)) + zero_point, -128, 127)
        np.testing.assert_array_equal(np.array(numbers), wanted)


@pytest.mark.parametrize(
    ("channels", "places", "said"),
    [
        ("aX,aY,aZ,gX,gY,gZ", [0, 1, 2, 3, 4, 5], []),
        ("gX,gY,gZ,aX,aY,aZ", [3, 4, 5, 0, 1, 2], []),
        ("", [0, 1, 2, 3, 4, 5], []),
        ("a,b,c,d,e,f", [0, 1, 2, 3, 4, 5], ["a, b, c, d, e, f, and a phone gives it aX, aY, aZ, gX, gY, gZ"]),
    ],
)
def test_columns_of_a_phone_are_found_by_their_names(
    gestures: Path, tmp_path: Path, channels: str, places: list[int], said: list[str]
) -> None:
    run = Path(shutil.copytree(gestures, tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"channels": channels.split(",") if channels else []}))
    listener = open_run(run)
    assert isinstance(listener, Listener)
    assert listener.description()["places"] == places
    assert len(listener.notes) == len(said)
    assert all(part in note for part, note in zip(said, listener.notes, strict=True))


def moves(shared_data: Path) -> tuple[list[str], list[Any]]:
    """Some movements, what they are, and their rows, one after the other."""
    recordings = motions_of(str(shared_data / "gestures"), 119)
    starts = np.abs(recordings.x[:, 0, :3]).sum(1) >= 2.5
    chosen = [i for label in range(5) for i in np.flatnonzero(starts & (recordings.labels == label))[:MOVEMENTS]]
    rows = np.concatenate([*recordings.x[chosen], [[0, 0, 1, 0, 0, 0]]]).tolist()
    return [recordings.classes[recordings.labels[i]] for i in chosen], rows


def moved(rows: list[Any]) -> str:
    """JavaScript that moves a phone."""
    return f"""{rows}.forEach(([x, y, z, beta, gamma, alpha], i) => {{
      const accelerationIncludingGravity = {{ x: x * 9.80665, y: y * 9.80665, z: z * 9.80665 }};
      const rotationRate = {{ alpha, beta, gamma }};
      const event = new DeviceMotionEvent("devicemotion", {{ accelerationIncludingGravity, rotationRate }});
      Object.defineProperty(event, "timeStamp", {{ value: 5000 + i * 1000 / 119 }});
      dispatchEvent(event);
    }})"""


def test_movements_of_a_phone_are_recognised(hand: Path, shared_data: Path, browser: Browser) -> None:
    kinds, rows = moves(shared_data)
    with serving(folder_server(hand)) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        page.value("document.getElementById('start').click()")
        page.until("document.body.dataset.running")
        page.value(moved(rows))
        page.until(f"document.querySelectorAll('#log li').length === {len(kinds)}")
        assert np.mean([a == b for a, b in zip(log_of(page), kinds, strict=True)]) >= 0.9
        assert page.problems == []


def test_play_takes_the_newest_run_that_hears(keywords: Path, tmp_path: Path) -> None:
    shutil.copytree(keywords, tmp_path / "runs/ears")
    (tmp_path / "runs/newer").mkdir()
    (tmp_path / "runs/newer/summary.json").write_text("{}")
    found = newest_run(tmp_path / "runs")
    assert isinstance(found, Listener)
    assert found.run == tmp_path / "runs/ears"


def test_play_serves_the_page_of_a_sensor(keywords: Path, ears: Path, browser: Browser) -> None:
    player = open_run(keywords)
    server = PlayServer(player, module=lambda: ears / "model")
    with serving(server) as address, browser.page(address) as page:
        page.until("document.body.dataset.ready")
        assert page.value("document.getElementById('start').textContent") == "Start the microphone"
        assert page.value("fetch('guess', { method: 'POST', body: 'x' }).then((answer) => answer.status)") == 404
        assert len(page.problems) == 1  # the refused guess


def test_sound_is_resampled(tmp_path: Path) -> None:
    node = shutil.which("node") or skip_or_fail("There is no Node.js: apt-get install nodejs")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "resampler.js").write_bytes((files("rudel.play") / "sensor_page/resampler.js").read_bytes())
    (tmp_path / "script.js").write_text(
        """import { Resampler } from "./resampler.js";
        const rates = [[48000, 8000], [44100, 8000], [44100, 16000], [16000, 16000], [8000, 16000]];
        const answers = rates.map(([from, to]) =>
          [500, 0.7 * Math.max(from, to) / 2].map((pitch) => {
            const resampler = new Resampler(from, to), made = [];
            for (let start = 0; start < from; start += 128) {
              const block = Float32Array.from({ length: 128 }, (_, i) =>
                0.5 * Math.sin((2 * Math.PI * pitch * (start + i)) / from));
              made.push(...resampler.push(block));
            }
            return made;
          }));
        console.log(JSON.stringify(answers));"""
    )
    done = subprocess.run([node, "script.js"], cwd=tmp_path, capture_output=True, text=True, check=True)
    for (given, to), (low, high) in zip(
        [(48000, 8000), (44100, 8000), (44100, 16000), (16000, 16000), (8000, 16000)],
        json.loads(done.stdout),
        strict=True,
    ):
        n = np.arange(200, to - 200)
        wanted = 0.5 * 32768 * np.sin(2 * np.pi * 500 * n / to)
        assert np.abs(np.array(low)[n] - wanted).max() < 16384 * 0.003, (given, to)
        if given > to:
            assert np.abs(np.array(high)[n]).max() < 16384 * 0.003, "what the model's rate cannot hold is filtered out"


def test_sound_without_probabilities_is_refused(tmp_path: Path) -> None:
    keras = keras_on_jax()
    sound = keras.Input((8000,), dtype="int16")
    frames = keras.layers.Rescaling(1 / 128)(Features(LogMel(8000))(sound))
    logits = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(frames))
    classes = keras.Model(sound, keras.layers.Softmax()(logits))
    directory = RunDirectory(tmp_path)
    directory.write_config({"class_names": list(WORDS)})
    listener = listener_of(directory, classes)
    assert listener is not None
    assert listener.classes == WORDS
    model = keras.Model(sound, logits)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ServeError, match=r"does not give probabilities, .*: let its model end in a softmax"):
        listener_of(directory, model)


def test_requests_at_the_moment_when_the_module_is_made_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str], NoReturn]
) -> None:
    if missing := missing_packages():
        lacking(f"This test needs {' and '.join(missing)}: pip install 'rudel[export,micro]'")
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    model, ended, together = tmp_path / "model.keras", tmp_path / "ended", threading.Barrier(8)
    command = 'exec 3> "$1"; mkdir -p "$0/model" && touch "$0/model/made.js"'
    os.mkfifo(ended)

    def request(module: PageModule) -> list[str]:
        together.wait()
        while (made := module()) is None:
            pass
        return [path.name for path in made.iterdir()]

    with contextlib.ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)  # threads take turns as often as they can
        threads = stack.enter_context(ThreadPoolExecutor(8))
        for number in range(30):
            model.write_text(f"the model number {number}")
            module = PageModule(model, lambda out: ["sh", "-c", command, str(out), str(ended)])
            assert ended.read_bytes() == b""  # when the process closes it, at its end
            assert list(threads.map(request, 8 * [module])) == 8 * [["made.js"]]


def test_without_a_place_for_the_module_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.keras"
    model.write_bytes(b"not a model of any other test")
    (tmp_path / "file").touch()
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "file"))
    module = PageModule(model, lambda out: ["false"])
    assert module() is None
    with pytest.raises(ServeError, match=r"cannot be written \(Not a directory\): make room there, or set RUDEL_CACHE"):
        module.wait()


def test_a_model_that_cannot_be_compiled_is_named(tmp_path: Path) -> None:
    model = tmp_path / "model.keras"
    model.write_bytes(b"not a model of any other test")
    module = PageModule(model, lambda out: ["false"])
    with contextlib.closing(module), pytest.raises(ServeError, match="`rudel export RUN --to page` says why"):
        module.wait()
