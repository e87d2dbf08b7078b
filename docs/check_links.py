"""Check that every link of the built site to a page, a file or a place in a page leads somewhere; needs no network.

python docs/check_links.py docs/_build/html
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The places in a page, and the links in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("id", "name"):
                self.places.add(value)
            elif value and (name == "src" or (name == "href" and tag in ("a", "link"))):
                self.links.add(value)


def dead_links(site: Path) -> list[str]:
    """Return the links that lead nowhere, each with the page that it is on."""
    site = site.resolve()
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if path.parent != site / "_static"  # a template of the theme's
    }
    dead = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:  # another site, or data that stand in the link
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            place = unquote(url.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].places):
                dead.append(f"{path.relative_to(site)}: {link}")
    return sorted(dead)


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]))
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(f"{len(found)} links lead nowhere" if found else 0)
