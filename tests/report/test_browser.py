"""The page in a real browser: nothing asked of the network, nothing out of place, readable in light, dark and print."""

import browser as browser_module
import pytest

pytestmark = pytest.mark.skipif(
    browser_module.program() is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)

# The contrast of every piece of text with what is behind it (WCAG 2.2, 1.4.3); [ratio, text] of the worst.
CONTRAST = """(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = c => { const v = c / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = element => {
    const box = element.closest('.box');
    if (box) return parse(getComputedStyle(box.querySelector('rect')).fill);
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('title, desc')) continue;
    const style = getComputedStyle(element);
    const front = parse(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(front), luminance(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, walker.currentNode.data.trim().slice(0, 40)];
  }
  return worst;
})()"""
INVISIBLE = """[...document.querySelectorAll('section, section > h2, figure, img, svg, main, nav, footer')]
  .filter(e => !e.closest('details:not([open])'))
  .filter(e => !e.checkVisibility() || e.getBoundingClientRect().height < 1 || e.getBoundingClientRect().width < 1)
  .map(e => e.tagName + '#' + e.id)"""
BROKEN_IMAGES = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
# What sticks out of the page without standing in something that scrolls by itself.
OVER_THE_EDGE = """[...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.scroll') && !e.closest('.skip') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.className)"""
# Words of a picture that run over its own edge are cut off.
CUT_OFF = """[...document.querySelectorAll('svg[role=img] text')].filter(t => {
  const svg = t.closest('svg');
  const a = t.getBoundingClientRect(), b = svg.getBoundingClientRect();
  return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).map(t => t.textContent)"""

OUT_OF_ITS_BOX = """[...document.querySelectorAll('.box text')].filter(t =>
  t.getBoundingClientRect().right > t.closest('.box').querySelector('rect').getBoundingClientRect().right - 2
).map(t => t.textContent)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = browser_module.Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_is_whole_and_readable(browser, rich_page, width, scheme):
    browser.open(rich_page, width=width, scheme=scheme)
    assert browser.complaints() == []
    asked = [address for address in browser.requests() if not address.startswith("data:")]
    assert asked == [rich_page.as_uri()]
    assert browser.ask("document.querySelectorAll('section').length") == 9
    assert browser.ask(INVISIBLE) == []
    assert browser.ask(BROKEN_IMAGES) == 0 and browser.ask("document.images.length") == 4
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(OVER_THE_EDGE) == []
    browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(CUT_OFF) == [] and browser.ask(OUT_OF_ITS_BOX) == []
    ratio, text = browser.ask(CONTRAST)
    assert ratio >= 4.5, text
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


def test_the_checks_of_this_file_can_fail(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body style='background:#fff'><section><h2></h2></section><p style='color:#999'>pale</p>"
        "<div style='width:2000px'>wide</div><img src='http://127.0.0.1:9/x.png'><script>console.error('no')</script>"
        "<svg role='img' width='20' height='20'><text x='0' y='15'>a long word</text></svg>"
        "<svg><g class='box'><rect width='30' height='20' fill='#fff'/><text x='0' y='15'>another</text></g></svg>"
    )
    browser.open(page, width=360, scheme="light")
    assert browser.complaints() and len(browser.requests()) == 2
    assert "H2#" in browser.ask(INVISIBLE)
    assert browser.ask(BROKEN_IMAGES) == 1
    assert browser.ask("document.documentElement.scrollWidth") > 360
    assert browser.ask(OVER_THE_EDGE) and browser.ask(CUT_OFF) == ["a long word"]
    assert browser.ask(OUT_OF_ITS_BOX) == ["another"]
    ratio, text = browser.ask(CONTRAST)
    assert ratio == pytest.approx(2.85, abs=0.01) and text == "pale"


def test_the_keyboard_is_enough(browser, rich_page):
    browser.open(rich_page, width=1280, scheme="light")
    browser.press("Tab", 9)
    assert browser.ask("document.activeElement.className") == "skip"
    assert browser.ask("document.activeElement.getBoundingClientRect().left") >= 0, "it shows itself"
    assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    seen = []
    for _ in range(40):
        browser.press("Tab", 9)
        seen.append(browser.ask("document.activeElement.tagName"))
    assert {"A", "SUMMARY", "DIV"} <= set(seen), "links, folded parts, tables that scroll"


def test_printed_it_is_light_and_unfolded(browser, rich_page):
    browser.open(rich_page, width=1280, scheme="dark")
    folded = "[...document.querySelectorAll('details:not([open]) td')].map(cell => cell.checkVisibility())"
    assert set(browser.ask(folded)) == {False}
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    hidden = "[...document.querySelectorAll('td')].filter(c => c.getBoundingClientRect().height < 1).length"
    assert browser.ask(hidden) == 0, "what is folded on the screen is printed"
    assert browser.ask("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.ask(CONTRAST)[0] >= 4.5
    pdf = browser.pdf()
    browser.call("Emulation.setEmulatedMedia", media="")
    assert pdf.startswith(b"%PDF-") and len(pdf) > 10_000
