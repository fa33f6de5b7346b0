"""``bench site``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bench.cli.commands import bench_command
from bench.cli.options import PATH, data_option, print_stderr, require_option, results_option
from bench.cli.strict_options import strict_option
from bench.cli.terminal import progress_bar
from bench.errors import InputError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.records.record import RunRecord
    from bench.records.store import ResultStore
    from bench.site.campaign_entry import CampaignCheck


@bench_command()
@strict_option("--out", type=PATH, default=Path("site"), show_default=True, help="Folder of the site.")
@strict_option("--url", default="", metavar="URL", help="Public address, for sitemap and feed.")
@strict_option("--title", default="bench results", show_default=True, help="Title of the site.")
@strict_option(
    "--history", type=PATH, metavar="FOLDER", help="Verdicts of bench check --json, for a page of builds."
)
@require_option("Name campaigns with records that are less than this, exit code 1.")
@results_option
@data_option()
def site_command(
    out: Path,
    url: str,
    title: str,
    history: Path | None,
    level: str,
    results: Path,
    data_dir: Path | None,
) -> None:
    """Make a static web site of all campaigns.

    It shows leaderboards, methods, every pair and published figures, without server or network. Campaigns are
    verified first; only changed ones are rendered. Exit codes: 0 made; 1 made, but a campaign can't be shown,
    has failed cells, unreadable records, findings of bench verify or less than --require; 2 bad input.
    """
    from bench.registry import discover
    from bench.site.build import SiteRequest, build_site, find_campaigns
    from bench.verify.sentence_checks import check_sentences

    discover()

    def check_quotes(texts: Mapping[str, bytes], records: Sequence[RunRecord], where: str) -> None:
        check_sentences(texts, records, data_dir, where)

    check = partial(_verify_campaign, data=data_dir, level=level)
    address = _parse_address(url)
    with progress_bar("campaigns", len(find_campaigns(results))) as advance:
        request = SiteRequest(
            results, out, data_dir, address, title.strip(), history, level, check, check_quotes, advance
        )
        result = build_site(request)
    for error in result.errors:
        print_stderr(f"can't be shown: {error}")
    for name, shortfall in result.doubtful.items():
        if shortfall:  # what isn't at hand here is no fault
            print_stderr(f"less than --require {level}: campaign {name}: {shortfall}")
        else:
            print_stderr(f"in doubt: campaign {name}; its page says why")
    if not address:
        print_stderr("no sitemap and no feed: they need --url")
    removed = f", {result.removed} files removed" if result.removed else ""
    click.echo(f"{out / 'index.html'}: {result.made} campaigns made, {result.kept} as they were{removed}")
    sys.exit(1 if result.errors or result.doubtful else 0)


def _parse_address(url: str) -> str:
    if not url:
        return ""
    valid = url.isprintable() and not set(url) & set(' "<>\\?#')
    try:
        parts = urlsplit(url)
        valid = valid and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        expected = "an address such as https://example.org/bench/"
        raise InputError(f"invalid address '{printable(url)}'", where="--url", expected=expected)
    return url if url.endswith("/") else f"{url}/"


def _verify_campaign(store: ResultStore, data: Path | None, level: str = "recomputed") -> CampaignCheck:
    from bench.records.environment import strip_paths
    from bench.records.imported import is_published
    from bench.site.campaign_entry import CampaignCheck
    from bench.verify.findings import verification_text
    from bench.verify.record_checks import VerifySettings, verify_records
    from bench.verify.repeatability import REPEATABLE, describe_shortfall

    verified, sound = verify_records(store.root, VerifySettings(data=data))
    shortfall = strip_paths(printable(describe_shortfall(level, verified, sound)))
    status = "verified" if len(verified.verified) == len(verified.records) else "in part"
    if status == "verified" and level == REPEATABLE and not shortfall:
        status = REPEATABLE
    if sound and all(is_published(record) for _, record in sound):
        status = "as published"
    if verified.findings:
        status = "faults"
    # what a rerun can show depends on the machine, so other sites omit it
    lines = verification_text(verified, here=level == REPEATABLE).splitlines()
    return CampaignCheck(status, tuple(map(strip_paths, lines)), shortfall)
