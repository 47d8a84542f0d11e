"""A headless Chromium for the tests of pages, at any width, theme and medium."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PHONE, TABLET, DESKTOP = 390, 768, 1280


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The driver; what a page saves lands in ``driver.downloads``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", *sandbox):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver: Any = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.downloads = tmp_path_factory.mktemp("downloads")
    saving = {"behavior": "allow", "downloadPath": str(driver.downloads)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", saving)
    yield driver
    driver.quit()


@pytest.fixture
def visit(browser: Any) -> Callable[..., Any]:
    """Open a page as a screen of this width, or a printer, would."""

    def go(page: Path, width: int = DESKTOP, theme: str = "light", media: str = "screen") -> Any:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(page.as_uri())
        return browser

    return go
