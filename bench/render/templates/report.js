"use strict";
(() => {
  const status = document.getElementById("status");
  const say = (text) => { status.textContent = text; };

  // What was chosen stands in the address behind the place, "#seeds?board-1.find=simcse": only what differs from
  // the page as it was made. A text from an address is only compared, or put into a field.
  const chosen = new Map();
  const takers = new Map();
  const apart = () => {
    const hash = location.hash.slice(1);
    const at = hash.indexOf("?");
    return at < 0 ? [hash, null] : [hash.slice(0, at), hash.slice(at + 1)];
  };
  const note = () => {
    const said = new URLSearchParams([...chosen]).toString();
    const hash = apart()[0] + (said && `?${said}`);
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { /* a browser may refuse, if asked often */ }
  };
  const keep = (name, value) => {
    if (value === null) chosen.delete(name); else chosen.set(name, value);
    note();
  };
  const bring = (name, take) => takers.set(name, take);
  const follow = () => {
    const [place, said] = apart();
    if (said !== null) {
      const wanted = new URLSearchParams(said.slice(0, 5000));
      chosen.clear();
      for (const [name, take] of takers) if (take(wanted.get(name))) chosen.set(name, wanted.get(name));
    }
    note();
    let name = place;
    try { name = decodeURIComponent(place); } catch { /* then it is no name */ }
    const there = name && document.getElementById(name);
    if (!there) return;
    if (there.tagName === "DETAILS") there.open = true;
    reveal(there);
    if (there.classList.contains("tab")) return;
    if (there.tagName === "TR") {
      for (const row of document.querySelectorAll("tr.target")) row.classList.remove("target");
      there.classList.add("target");
    }
    if (said !== null || chosen.size || there.tagName !== "SECTION") there.scrollIntoView();
  };
  const controls = (element, apply) => {
    for (const control of element.querySelectorAll("[data-state]")) {
      const name = control.dataset.state;
      const box = control.type === "checkbox";
      const first = box ? control.checked : control.value;
      control.addEventListener(control.type === "search" ? "input" : "change", () => {
        const value = box ? control.checked : control.value;
        keep(name, value === first ? null : box ? (value ? "on" : "off") : value);
        apply(control);
      });
      bring(name, (value) => {
        if (box) control.checked = value === null ? first : value === "on";
        else if (control.tagName === "SELECT") {
          control.value = [...control.options].some((option) => option.value === value) ? value : first;
        } else control.value = (value ?? first).slice(0, 200);
        apply(control);
        return (box ? control.checked : control.value) !== first;
      });
    }
  };

  // Theme: the system's until the button is pressed
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    theme.textContent = dark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
  };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();

  // Sorting: numbers largest first, then the other way; what is missing stays last
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent.trim();
    if (text === "" || text === "-") return null;
    const plain = text.replace(/,(?=\d{3})/g, "");
    const found = /^[[(]?\s*([+-]?\d+(?:\.\d+)?)/.exec(plain);
    return cell.tagName === "TD" && found ? Number(found[1]) : text;
  };
  const order = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const arrange = (table, column, way) => {
    const bodies = [...table.tBodies];
    const sign = way === "ascending" ? 1 : -1;
    const sorted = (rows, row) => rows.map((item, place) => [key(row(item), column), place, item])
      .sort((x, y) => order(x[0], y[0], sign) || x[1] - y[1]).map((entry) => entry[2]);
    if (table.dataset.unit === "tbody") {
      table.append(...sorted(bodies, (body) => body.rows[0]));
    } else {
      for (const body of bodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
        body.append(...sorted(rows, (row) => row));
      }
    }
    const headings = table.tHead.rows[0].cells;
    for (const other of headings) other.removeAttribute("aria-sort");
    headings[column].setAttribute("aria-sort", way);
  };
  const WAYS = ["descending", "ascending"];
  const next = (table, heading) => {
    const rows = table.dataset.unit === "tbody" ? [...table.tBodies].map((body) => body.rows[0])
      : [...table.tBodies].flatMap((body) => [...body.rows]);
    const numeric = rows.some((row) => typeof key(row, heading.cellIndex) === "number");
    const [first, other] = numeric ? WAYS : [...WAYS].reverse();
    return heading.getAttribute("aria-sort") === first ? other : first;
  };
  const named = (heading) => heading.dataset.name ?? heading.textContent.trim();
  const original = (table) => {
    const bodies = [...table.tBodies].map((body) => [body, [...body.rows]]);
    const sorted = table.tHead.querySelector("[aria-sort]");
    const way = sorted?.getAttribute("aria-sort");
    return () => {
      for (const [body, rows] of bodies) { table.append(body); body.append(...rows); }
      for (const heading of table.tHead.rows[0].cells) heading.removeAttribute("aria-sort");
      sorted?.setAttribute("aria-sort", way);
    };
  };
  document.querySelectorAll("table.sortable").forEach((table, place) => {
    const headings = [...table.tHead.rows[0].cells];
    const restore = original(table);
    for (const heading of headings) {
      heading.querySelector(".sort")?.addEventListener("click", () => {
        const way = next(table, heading);
        arrange(table, heading.cellIndex, way);
        keep(`sort-${place}`, `${way} ${named(heading)}`);
        say(`Sorted by ${named(heading)}, ${way}`);
      });
    }
    bring(`sort-${place}`, (value) => {
      const at = (value ?? "").indexOf(" ");
      const way = WAYS.find((each) => each === (value ?? "").slice(0, at));
      const heading = headings.find((each) => each.querySelector(".sort") && named(each) === (value ?? "").slice(at + 1));
      if (way && heading) arrange(table, heading.cellIndex, way); else restore();
      return Boolean(way && heading);
    });
  });

  // Any table as csv: the rows that are shown, all columns, a column more for deviations and one for signs. A cell
  // that a spreadsheet would compute gets an apostrophe, as in formats/render.py.
  const NUMBER = "[+-]\\d[\\d,]*(?:\\.\\d+)?(?:e[+-]\\d+)?";
  const NUMERIC = new RegExp(`^(?:-|${NUMBER}(?:\u00b1\\d+\\.\\d+)?[*?%\u2020\u2021]*(?: \\[${NUMBER}, ${NUMBER}\\])?)$`);
  const inert = (text) => (/^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) && !NUMERIC.test(text) ? `'${text}` : text);
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const split = (cell) => {
    if (cell?.querySelector(".link")) return [cell.querySelector("a").textContent, "", ""];
    if (cell?.dataset.csv !== undefined) return [cell.dataset.csv, "", ""];
    if (cell?.classList.contains("size") && cell.dataset.v) return [cell.dataset.v, "", ""];
    const parts = ["", "", ""];
    for (const node of cell?.childNodes ?? []) {
      const place = node.nodeName === "SUP" ? 2 : node.classList?.contains("sd") ? 1 : 0;
      parts[place] += node.textContent;
    }
    const [text, sd, sign] = parts.map((part) => part.trim());
    return [/^\d{1,3}(,\d{3})+$/.test(text) ? text.replaceAll(",", "") : text, sd.replace(/^\u00b1/, ""), sign];
  };
  // The shown rows as [text, deviation, sign] cells, with a group and an id where rows have them
  const shownCells = (table) => {
    const heads = [...table.tHead.rows[0].cells].map(named);
    const rows = [];
    let group = "";
    for (const body of table.tBodies) {
      for (const row of body.rows) {
        if (row.classList.contains("group")) { group = row.textContent.trim(); continue; }
        if (row.getClientRects().length || !table.getClientRects().length) {
          const id = row.dataset.id ?? body.dataset.id ?? "";
          rows.push([[group, "", ""], [id, "", ""], ...heads.map((_, place) => split(row.cells[place]))]);
        }
      }
    }
    return [["group", "id", ...heads], rows];
  };
  const csv = (table) => {
    const [heads, rows] = shownCells(table);
    const has = (at, part) => rows.some((row) => row[at][part]);
    const columns = heads.flatMap((_, at) => [0, 1, 2].filter((part) => (part === 0 ? at > 1 || has(at, 0) : has(at, part))).map((part) => [at, part]));
    const suffix = ["", " sd", " sign"];
    const lines = [columns.map(([at, part]) => heads[at] + suffix[part]), ...rows.map((row) => columns.map(([at, part]) => row[at][part]))];
    return lines.map((line) => line.map((text) => quoted(inert(text))).join(",")).join("\n") + "\n";
  };
  const SPECIAL = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "\u00b1": "$\\pm$",
    "\u25b2": "$\\uparrow$", "\u25bc": "$\\downarrow$", "\u2248": "$\\approx$", "\u25cb": "$\\circ$", "\u2020": "$\\dagger$", "\u2021": "$\\ddagger$" };
  const PLAIN = /[^\x20-\x7e\u00a0-\u00ff\u25b2\u25bc\u2248\u25cb\u2020\u2021]/gu;  // letters beyond LaTeX's fonts, as text
  const tex = (text) => text.normalize("NFC").replace(PLAIN, (char) => `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`).replace(/[\\~^<>\u00b1\u25b2\u25bc\u2248\u25cb\u2020\u2021{}$%&#_[\]]/g, (char) => SPECIAL[char] ?? ("[]".includes(char) ? `{${char}}` : `\\${char}`));
  const latex = (table) => {
    const [heads, rows] = shownCells(table);
    const kept = heads.map((_, at) => at).filter((at) => at > 1 && !table.tHead.rows[0].cells[at - 2].classList.contains("strip"));
    const lines = [kept.map((at) => heads[at]), ...rows.map((row) => kept.map((at) => row[at]).map(([text, sd, sign]) => text + (sd && `\u00b1${sd}`) + sign))];
    const [head, ...body] = lines.map((line) => `{}${line.map(tex).join(" & ")} \\\\`);
    return [`\\begin{tabular}{l${"r".repeat(kept.length - 1)}}`, "\\toprule", head, "\\midrule", ...body, "\\bottomrule", "\\end{tabular}", ""].join("\n");
  };
  const download = (table, title) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv;charset=utf-8" }));
    link.download = `${document.body.dataset.campaign}-${title}`.replace(/[^\w.-]+/g, "-").slice(0, 80) + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const copy = async (text, what) => {
    try { await navigator.clipboard.writeText(text); } catch {
      const field = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    say(`${what} copied`);
  };
  const LONGEST_TITLE = 80;
  for (const table of document.querySelectorAll("table.sortable")) {
    const title = table.caption.textContent.split(/[.:] Column|\. /)[0].slice(0, LONGEST_TITLE);
    const tools = document.createElement("p");
    tools.className = "tools";
    const actions = [["CSV", "Download as CSV", () => download(table, title)], ["Copy CSV", "Copy as CSV", () => copy(csv(table), "CSV")],
      ["Copy LaTeX", "Copy as LaTeX", () => copy(latex(table), "LaTeX")]];
    for (const [text, label, act] of actions) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "csv", textContent: text });
      button.setAttribute("aria-label", `${label}: ${title}`);
      button.addEventListener("click", act);
      tools.append(button);
    }
    (table.closest(".scroll") ?? table).after(tools);
  }

  // Filters and columns of a leaderboard, and of the pairs of methods
  for (const board of document.querySelectorAll(".board")) {
    const table = board.querySelector("table.sortable");
    const find = board.querySelector(".find");
    const family = board.querySelector(".family");
    const pairs = board.classList.contains("pairs");
    const units = pairs ? [...table.tBodies[0].rows] : [...table.tBodies];
    const names = (unit) => (pairs ? [0, 1].map((i) => unit.cells[i].textContent) : [unit.dataset.method, unit.dataset.id]);
    const filter = () => {
      const text = find.value.trim().toLowerCase();
      const at = family.value.indexOf(":");
      const [kind, wanted] = [family.value.slice(0, Math.max(at, 0)), family.value.slice(at + 1)];
      let shown = 0;
      for (const unit of units) {
        const own = kind === "" || (pairs ? names(unit).includes(wanted) : unit.dataset[kind] === wanted);
        unit.hidden = !(own && names(unit).some((name) => name.toLowerCase().includes(text)));
        shown += !unit.hidden;
      }
      say(`${shown} of ${units.length} ${pairs ? "pairs" : "methods"} shown`);
    };
    board.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    controls(board, (control) => {
      if (control.classList.contains("toggle")) table.classList.toggle(control.dataset.class, control.checked);
      else if (control.value || units.some((unit) => unit.hidden)) filter();
      if (pairs && control.value) board.querySelector("details").open = true;
    });
  }

  // Who differs from whom: what is under the pointer, and a click lists the row's pairs
  for (const table of document.querySelectorAll("table.signs")) {
    const board = table.closest(".board");
    const names = [...board.querySelectorAll(".family option")].slice(1).map((option) => option.textContent);
    const listed = new Map([...board.querySelectorAll(".listed tbody tr")].map((row) => [`${row.cells[0].textContent}\n${row.cells[1].textContent}`, row]));
    const said = document.createElement("p");
    said.className = "readout";
    table.closest(".scroll").after(said);
    const of = (cell) => [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
    table.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td");
      for (const each of table.querySelectorAll(".here")) each.classList.remove("here");
      if (!cell) { said.textContent = ""; return; }
      const [i, j] = of(cell);
      const row = listed.get(`${names[i]}\n${names[j]}`) ?? listed.get(`${names[j]}\n${names[i]}`);
      if (!row) { said.textContent = ""; return; }
      for (const each of [cell, cell.parentNode.cells[0], table.tHead.rows[0].cells[j + 1]]) each.classList.add("here");
      const text = (place) => row.cells[place].textContent;
      said.textContent = `${text(0)} less ${text(1)}: ${text(2)}, interval ${text(3)}, p corrected ${text(4)}: ${text(6)} (${text(5)})`;
    });
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("tbody td, tbody th");
      const family = board.querySelector(".family");
      if (!cell) return;
      family.value = `pair:${names[cell.parentNode.rowIndex - 1]}`;
      family.dispatchEvent(new Event("change"));
    });
  }

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.provenance")) details.open = true;
  });
