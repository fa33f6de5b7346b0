"""New names of a plan: its campaign, its profile and its rows become folders."""

from __future__ import annotations

import re
import shlex

from bench.plan.plan import Plan
from bench.records.names import check_new, check_new_campaign, safe_name
from bench.request.spec import MethodRequest


def check_names(plan: Plan) -> None:
    """Refuse new names of folders that a case-insensitive file system or Windows can't hold.

    What the campaign has already under exactly its name goes on. A repetition in a scratch folder isn't
    checked: its names are those of records.

    Raises:
        InputError: such a name of the campaign, the profile or a row.
    """
    check_new_campaign(plan.spec.results, plan.spec.campaign)
    requests = {request.text: request for request in plan.spec.methods}
    rows = {safe_name(method): requests[text] for text, method in plan.ids.items()}
    for label in dict.fromkeys(job.place.profile for job in plan.jobs):
        profile = safe_name(label)
        where = f"--profile {plan.spec.profile}"
        check_new(plan.store.root, profile, where=where, hint="give the profile's file another name")
        for name, request in rows.items():
            folder, where = plan.store.root / profile, f"--methods {request.text}"
            check_new(folder, name, where=where, hint=_hint(request), others=rows)


def _hint(request: MethodRequest) -> str:
    """What to type for the same method under a name of its own."""
    alias, method = request.alias, request.text
    if alias is not None:
        method = method.partition("=")[2].strip()
    name = re.sub(r"[^A-Za-z0-9_+-]+", "-", alias or request.name).strip("-")
    return f"type another name for the row: {shlex.quote(f'{name}-1={method}')}"
