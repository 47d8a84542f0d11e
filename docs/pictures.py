"""``make pictures``: the pictures of the documentation, from what ``make demo`` and ``make demo-mi`` left.

Needs Chromium and ChromeDriver, as the browser tests do. Writes ``assets/pictures``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

OUT = Path("assets/pictures")
DEMO = Path("outputs/demo")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with Image.open("outputs/demo_mi/reconstructions.png") as faces:
        faces.convert("RGB").resize((1100, 1100 * faces.height // faces.width)).save(
            OUT / "reconstructions.jpg", quality=85
        )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "score.html"
        photos = sorted((DEMO / "data" / "images" / "test2017").glob("*.jpg"))[:60]
        options = {"model": "assets/demo_base", "adapter": DEMO / "adapter", "dtype": "float32", "out": page}
        options |= {"structured": "true", "thumbnails": "true", "flag_above": 0.514}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        subprocess.run(
            [sys.executable, "-m", "cprt.cli", "score", *words, *map(str, photos)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        driver = _browser()
        try:
            for theme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": theme}]
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                driver.get(page.as_uri())
                driver.save_screenshot(str(OUT / f"score-{theme}.png"))
                driver.get((DEMO / "tuned" / "report.html").absolute().as_uri())
                scores = driver.find_element(By.CSS_SELECTOR, "img[alt*='true level']")
                (OUT / f"levels-{theme}.png").write_bytes(scores.screenshot_as_png)
        finally:
            driver.quit()


def _browser() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    size = {"width": 1100, "height": 820, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return driver


if __name__ == "__main__":
    main()
