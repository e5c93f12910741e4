"""The page of the service without a browser: it renders, it is complete, and it needs nothing from elsewhere."""

import re
from html.parser import HTMLParser

import pytest
from starlette.requests import Request

from cometad.report.html import render
from cometad.serve.api.about import MODULES, index, page_file, static_files
from cometad.serve.api.about import PAGE as FOLDER

LOADED = ("src", "href")
URL = re.compile(r"(?:https?:)?//[\w.-]+\.\w[^\s\"')]*")
ALLOWED = {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}  # a namespace, and uPlot's own notice
IMPORT = re.compile(r'^import .* from "\./(.+)";$', re.MULTILINE)
SOURCES = sorted(path for path in FOLDER.glob("*.js"))
PAGE = bytes(index().body).decode()


class Tags(HTMLParser):
    """The tags of a page, as (name, attributes)."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def tags():
    return Tags(PAGE).found


def referred(tags):
    """The addresses of the files that the page loads."""
    return {
        facts[name]
        for tag, facts in tags
        for name in LOADED
        if tag in ("script", "link", "img") and facts.get(name) is not None
    }


def policy(tags):
    (content,) = (facts["content"] for _, facts in tags if facts.get("http-equiv") == "Content-Security-Policy")
    return {rule.split()[0]: rule.split()[1:] for rule in content.split(";")}


def test_every_file_the_page_loads_is_served(tags):
    assert {f"/{address}" for address in referred(tags)} <= static_files().keys()


def test_every_file_served_is_used(tags):
    used = {f"/{address}" for address in referred(tags)}
    assert static_files().keys() - used == {"/page/uplot/LICENSE", "/favicon.ico"}


def test_every_file_in_the_folder_is_served_or_documents_another():
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    served = {address.removeprefix("/").removeprefix("page/") for address in static_files()}
    kept = {name for name in names - served if not name.endswith((".py", ".pyc"))}
    assert kept == {"types.js"}  # only JSDoc


def test_every_import_names_a_module_of_the_page():
    imported = {name for path in SOURCES for name in IMPORT.findall(path.read_text("utf-8"))}
    assert imported == set(MODULES)


@pytest.mark.parametrize("address", static_files())
def test_no_file_refers_to_another_site(address):
    content = static_files()[address]
    if not address.endswith((".ico", "LICENSE")):
        assert set(URL.findall(content.decode("utf-8"))) <= ALLOWED


def test_the_page_refers_to_no_other_site():
    assert set(URL.findall(PAGE)) <= ALLOWED


def test_the_page_has_no_inline_script_or_handler(tags):
    assert all(facts.get("src") for tag, facts in tags if tag == "script")
    assert not [name for _, facts in tags for name in facts if name.startswith("on")]


def test_the_policy_allows_only_this_site(tags):
    rules = policy(tags)
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == rules["connect-src"] == ["'self'"]
    sources = {source for rule in rules.values() for source in rule}
    assert sources == {"'none'", "'self'", "'unsafe-inline'", "data:"}
    assert [name for name, rule in rules.items() if "'unsafe-inline'" in rule] == ["style-src"]


def test_other_pages_still_allow_no_scripts_and_no_requests():
    assert policy(Tags(render("base.html", title="report")).found) == {
        "default-src": ["'none'"],
        "style-src": ["'unsafe-inline'"],
    }


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_data_never_becomes_markup(path):
    text = path.read_text("utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


def test_media_types_let_a_browser_run_modules_without_guessing():
    asked = {path: Request({"type": "http", "path": path, "headers": []}) for path in static_files()}
    kinds = {path: page_file(request).media_type for path, request in asked.items()}
    assert all(kind.startswith("text/javascript") for address, kind in kinds.items() if address.endswith(".js"))
    assert kinds["/page/dashboard.css"].startswith("text/css")
    assert kinds["/page/favicon.svg"] == "image/svg+xml"


def test_the_license_of_uplot_is_kept():
    assert b"The MIT License" in static_files()["/page/uplot/LICENSE"]
