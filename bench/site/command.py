"""``bench site``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bench.cli.options import PATH, data_option, results_option
from bench.cli.strict_option import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.records.record import RunRecord
    from bench.records.store import ResultStore
    from bench.site.campaign_entry import CampaignCheck


@click.command()
@strict_option("--out", type=PATH, default=Path("site"), show_default=True, help="Folder of the site.")
@strict_option("--url", default="", metavar="URL", help="Where it will be published: for sitemap and feed.")
@strict_option("--title", default="bench results", show_default=True, help="Of the site.")
@strict_option(
    "--history", type=PATH, metavar="FOLDER", help="Verdicts of bench check --json: a page of builds."
)
@results_option
@data_option()
def site_command(
    out: Path, url: str, title: str, history: Path | None, results: Path, data_dir: Path | None
) -> None:
    """Make one static site of all campaigns: leaderboards, methods, every pair, published figures.

    Every campaign is verified first. Pages need no server and ask for nothing; unchanged campaigns are not
    rendered again. Exit codes: 0 made; 1 made, but a campaign can't be shown, has failed cells, records that
    can't be read or findings of bench verify; 2 bad input.
    """
    from bench.registry import discover
    from bench.site.build import SiteRequest, build_site, find_campaigns
    from bench.verify.sentence_checks import check_sentences

    discover()

    def quotes(texts: Mapping[str, bytes], records: Sequence[RunRecord], where: str) -> None:
        check_sentences(texts, records, data_dir, where)

    def check(store: ResultStore) -> CampaignCheck:
        return _verify_campaign(store, data_dir)

    address = _parse_address(url)
    with progress_bar("campaigns", len(find_campaigns(results))) as advance:
        asked = SiteRequest(results, out, data_dir, address, title.strip(), history, check, quotes, advance)
        built = build_site(asked)
    for error in built.errors:
        click.echo(f"can't be shown: {error}", err=True)
    for name in built.doubtful:
        click.echo(f"in doubt: campaign {name}; its page says why", err=True)
    if not address:
        click.echo("no sitemap and no feed: they need --url", err=True)
    said = f"{built.made} campaigns made, {built.kept} as they were"
    click.echo(
        f"{out / 'index.html'}: {said}" + (f", {built.removed} files removed" if built.removed else "")
    )
    sys.exit(1 if built.errors or built.doubtful else 0)


def _parse_address(url: str) -> str:
    if url and not _is_address(url):
        raise InputError(
            f"'{printable(url)}' is no address", where="--url", expected="such as https://example.org/bench/"
        )
    return url if not url or url.endswith("/") else f"{url}/"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        plain = url.isprintable() and not any(char in ' "<>\\?#' for char in url)
        return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _verify_campaign(store: ResultStore, data: Path | None) -> CampaignCheck:
    """What ``bench verify`` says of a campaign."""
    from bench.records.environment import strip_paths
    from bench.site.campaign_entry import CampaignCheck
    from bench.verify.record_checks import SIDE_PREFIXES, VerifySettings, verify_records
    from bench.verify.verification_formats import verification_text

    verified, _ = verify_records(store.root, VerifySettings(data=data))
    open_ = [what for what in verified.unchecked if not what.startswith(SIDE_PREFIXES)]
    status = "faults" if verified.findings else "in part" if open_ else "verified"
    return CampaignCheck(status, tuple(map(strip_paths, verification_text(verified).splitlines())))
