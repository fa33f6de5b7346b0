"""What machines read of the site: sitemap, robots, a feed of new campaigns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from bench.errors import printable
from bench.site.campaign_entry import CampaignEntry
from bench.site.page import Site

_MOST = 50
"""Campaigns in the feed, the newest first."""


def render_robots(site: Site) -> bytes:
    """Return robots.txt: everything may be read; the sitemap's address must be absolute, so it needs one."""
    sitemap = f"Sitemap: {site.url}sitemap.xml\n" if site.url else ""
    return f"User-agent: *\nAllow: /\n{sitemap}".encode()


def render_sitemap(site: Site, pages: Iterable[str]) -> bytes:
    """Return the sitemap of pages, by their paths below the root."""
    lines = "".join(f"<url><loc>{escape(site.url + path)}</loc></url>\n" for path in sorted(pages))
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    return f"{head}{lines}</urlset>\n".encode()


def render_feed(site: Site, entries: Sequence[CampaignEntry]) -> bytes:
    """Return an Atom feed of campaigns, the newest first."""
    newest = sorted((e for e in entries if e.date), key=lambda e: (e.date, e.campaign), reverse=True)[:_MOST]
    items = "".join(_render_item(site, entry) for entry in newest)
    updated = newest[0].date if newest else "1970-01-01T00:00:00+00:00"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>{escape(printable(site.title))}</title>\n<id>{escape(site.url)}</id>\n"
        f'<link href={quoteattr(site.url)}/>\n<link rel="self" href={quoteattr(site.url + "feed.xml")}/>\n'
        f"<updated>{escape(printable(updated))}</updated>\n{items}</feed>\n"
    ).encode()


def _render_item(site: Site, entry: CampaignEntry) -> str:
    address = f"{site.url}campaigns/{entry.campaign}/index.html"
    who = printable(", ".join(entry.by) or site.title)
    facts = (
        f"{len(entry.methods)} methods, {entry.records} records, profile {', '.join(entry.profiles)}, "
        f"{entry.check.status}"
    )
    return (
        f"<entry><title>{escape(entry.campaign)}</title><id>{escape(address)}</id>"
        f"<link href={quoteattr(address)}/><updated>{escape(printable(entry.date))}</updated>"
        f"<author><name>{escape(who)}</name></author><summary>{escape(printable(facts))}</summary></entry>\n"
    )
