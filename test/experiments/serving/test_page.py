"""The page of the service in a real browser: every control, and nothing leaves the host."""

import json
import shutil
import time

import numpy as np
import pytest

from sparse_embed.experiments.serving.collection import Collection
from sparse_embed.retrieval import SparseIndex

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser():
    if not BROWSER or not DRIVER:
        pytest.skip("needs chromium or google-chrome, and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Page:
    """The opened page, as a user sees it."""

    def __init__(self, browser):
        self.browser = browser

    def __getattr__(self, name):
        return self.browser.find_element(By.ID, name.replace("_", "-"))

    def until(self, condition):
        return WebDriverWait(self.browser, 30).until(lambda _: condition())

    def ids(self):
        """The ids of the results that are shown."""
        return self.browser.execute_script(
            "return [...document.querySelectorAll('.score span')]"
            ".map(span => Number(span.textContent.slice(1)))"
        )

    def slide(self, name, value):
        self.browser.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
            getattr(self, name),
            value,
        )

    def upload(self, path):
        self.file.send_keys(str(path))
        self.until(lambda: path.name in self.asked_note.text)


@pytest.fixture
def page(browser, client):
    browser.get(str(client.base_url))
    opened = Page(browser)
    opened.until(opened.ids)
    return opened


def test_an_upload_shows_neighbours_with_scores_and_shared_dimensions(page, folders, collection):
    page.upload(folders / "photos" / "b" / "27.png")
    assert page.ids()[0] == 27
    assert len(page.ids()) == 12
    card = page.results.find_element(By.CSS_SELECTOR, "li")
    assert card.find_element(By.CSS_SELECTOR, ".score strong").text == "1.000"
    assert card.find_element(By.CSS_SELECTOR, ".name").text == "b/27.png"
    image = card.find_element(By.TAG_NAME, "img")
    page.until(lambda: page.browser.execute_script("return arguments[0].naturalWidth", image) == 16)
    active = collection.index.reconstruct([27]).nnz
    assert f"{active} of 64 dimensions are active" in page.asked_note.text
    # The query above, the same row below it: all are shared.
    assert len(card.find_elements(By.CSS_SELECTOR, "svg .shared")) == 2 * active
    assert f"{active} of {active} shared" in card.text
    second = page.results.find_elements(By.CSS_SELECTOR, "li")[1]
    assert 0 < len(second.find_elements(By.CSS_SELECTOR, "svg .shared")) < 2 * active
    for stage in ("decode", "wait", "encode", "search", "total"):
        assert f"{stage} " in page.legend.text


def test_sliders_change_the_results(page, collection):
    page.slide("k", 5)
    page.until(lambda: len(page.ids()) == 5)
    assert page.k_shown.text == "5"
    before = page.ids()
    page.rerank.click()
    page.until(lambda: "re-ranked" in page.status.text)
    assert "rerank" in page.legend.text
    dense = collection.dense @ collection.dense[0]
    assert page.ids() == [row for row in np.argsort(-dense).tolist() if row][:5]
    page.rerank.click()
    page.until(lambda: page.ids() == before)
    scores, ids = collection.index.search(collection.index.reconstruct([0]), 6)
    middle = float(np.round((scores[0, 2] + scores[0, 3]) / 2, 2))
    wanted = [number for score, number in zip(scores[0], ids[0], strict=True) if score >= middle]
    page.slide("threshold", middle)
    page.until(lambda: page.ids() == [number for number in wanted if number])
    assert page.threshold_shown.text == f"{middle:.2f}"


def test_a_click_on_a_dimension_shows_what_activates_it(page, collection):
    chip = page.asked_chips.find_element(By.TAG_NAME, "button")
    place = int(chip.text.split(":")[0])
    chip.send_keys(Keys.ENTER)  # the keyboard does what the mouse does
    page.until(lambda: page.dimension.is_displayed())
    assert page.dimension_title.text == f"What activates dimension {place} most"
    column = collection.index.reconstruct(np.arange(40)).toarray()[:, place]
    best = np.argsort(-column, kind="stable")[: min(12, int((column > 0).sum()))]
    captions = [one.text for one in page.dimension_rows.find_elements(By.TAG_NAME, "figcaption")]
    assert captions == [f"{column[row]:.3f}, #{row}" for row in best]
    page.dimension_close.click()
    assert not page.dimension.is_displayed()
    assert page.browser.switch_to.active_element == chip


def test_a_neighbour_and_a_number_are_queries_too(page):
    second = page.ids()[1]
    page.results.find_elements(By.CSS_SELECTOR, "li > button")[1].send_keys(Keys.ENTER)
    page.until(lambda: f"row {second}:" in page.asked_note.text)
    assert second not in page.ids()
    field = page.id
    field.clear()
    field.send_keys("7", Keys.ENTER)
    page.until(lambda: "row 7:" in page.asked_note.text)
    page.browser.execute_script("Math.random = () => 0.5")
    page.random.click()
    page.until(lambda: "row 20:" in page.asked_note.text)


def test_a_drawing_is_searched_for(page):
    page.draw.click()
    assert page.draw.get_attribute("aria-pressed") == "true"
    drag = ActionChains(page.browser).move_to_element_with_offset(page.pad, -40, -40)
    drag.click_and_hold().move_by_offset(60, 50).release().perform()
    page.until(lambda: page.asked_note.text.startswith("drawing:"))
    page.clear.click()


def test_a_pasted_and_a_dropped_image_are_searched_for(page):
    script = """
        const canvas = document.createElement("canvas"), kind = arguments[0];
        canvas.width = canvas.height = 16;
        canvas.toBlob(blob => {
            const data = new DataTransfer();
            data.items.add(new File([blob], "given.png", {type: "image/png"}));
            document.dispatchEvent(kind === "paste"
                ? new ClipboardEvent(kind, {clipboardData: data})
                : new DragEvent(kind, {dataTransfer: data, cancelable: true}));
        });
    """
    for kind, name in (("drop", "given.png"), ("paste", "pasted image")):
        page.browser.execute_script(script, kind)
        page.until(lambda name=name: page.asked_note.text.startswith(name))


def test_a_mistake_is_told_and_the_page_goes_on(page, folders, tmp_path):
    page.browser.get_log("browser")
    (tmp_path / "text.png").write_text("no image")
    page.file.send_keys(str(tmp_path / "text.png"))
    page.until(lambda: "no image" in page.message.text)
    (entry,) = page.browser.get_log("browser")  # the browser itself notes the status 422
    assert "422" in entry["message"]
    page.upload(folders / "photos" / "a" / "03.png")
    assert page.message.text == ""


def test_no_error_and_nothing_leaves_the_host(page, client, folders):
    page.browser.get_log("performance")
    page.browser.get_log("browser")
    page.browser.get(str(client.base_url))
    page.until(page.ids)
    page.upload(folders / "photos" / "b" / "27.png")
    page.browser.get(str(client.base_url.join("/docs")))
    page.until(lambda: "/search/vector" in page.list.text)
    assert page.browser.get_log("browser") == []
    requests = [
        json.loads(entry["message"])["message"]["params"]["request"]["url"]
        for entry in page.browser.get_log("performance")
        if '"Network.requestWillBeSent"' in entry["message"]
    ]
    own = (str(client.base_url), "data:", "blob:")
    assert len(requests) > 10
    assert [url for url in requests if not url.startswith(own)] == []


def test_every_control_has_a_name_and_is_reached_by_tab(page):
    names = page.browser.execute_script(
        """return [...document.querySelectorAll("button, input")].filter(e => e.offsetParent)
            .map(e => e.getAttribute("aria-label") || e.textContent.trim()
                || (e.labels?.[0]?.textContent ?? ""))"""
    )
    assert len(names) > 20
    assert all(names)
    reached = set()
    for _ in range(12):
        ActionChains(page.browser).send_keys(Keys.TAB).perform()
        reached.add(page.browser.switch_to.active_element.get_attribute("id"))
    assert {"file", "draw", "id", "random", "k", "threshold", "rerank"} <= reached
    for name in ("status", "dimension"):
        assert getattr(page, name).get_attribute("aria-live") == "polite"


def test_dark_light_and_narrow(page):
    colours = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        body = page.browser.find_element(By.TAG_NAME, "body")
        colours.append([body.value_of_css_property(name) for name in ("background-color", "color")])
    assert all(light != dark for light, dark in zip(*colours, strict=True))
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    time.sleep(0.2)
    wide = page.browser.execute_script("return document.documentElement.scrollWidth")
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide <= 360


def test_vectors_alone_have_a_page(browser, serve):
    rows = np.random.default_rng(0).random((20, 8)).astype(np.float32)
    with serve(Collection(SparseIndex.build(rows))) as client:
        browser.get(str(client.base_url))
        page = Page(browser)
        page.until(lambda: "20 rows" in page.about.text)
        assert not page.drop.is_displayed()
        assert not page.reranking.is_displayed()
        page.id.send_keys(Keys.ENTER)
        page.until(page.ids)
        assert "row" in page.results.text
        assert browser.get_log("browser") == []
