"use strict";
(() => {
  const status = document.getElementById("status");
  const say = (text) => { status.textContent = text; };

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
  const sort = (table, heading) => {
    const column = heading.cellIndex;
    const bodies = [...table.tBodies];
    const whole = table.dataset.unit === "tbody";
    const first = whole ? bodies.map((body) => body.rows[0]) : bodies.flatMap((body) => [...body.rows]);
    const numeric = first.some((row) => typeof key(row, column) === "number");
    const was = heading.getAttribute("aria-sort");
    const way = was === (numeric ? "descending" : "ascending") ? (numeric ? "ascending" : "descending")
      : (numeric ? "descending" : "ascending");
    const sign = way === "ascending" ? 1 : -1;
    const sorted = (rows, row) => rows.map((item, place) => [key(row(item), column), place, item])
      .sort((x, y) => order(x[0], y[0], sign) || x[1] - y[1]).map((entry) => entry[2]);
    if (whole) {
      table.append(...sorted(bodies, (body) => body.rows[0]));
    } else {
      for (const body of bodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
        body.append(...sorted(rows, (row) => row));
      }
    }
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", way);
    say(`Sorted by ${heading.textContent.trim()}, ${way}`);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const button of table.querySelectorAll("thead .sort")) {
      button.addEventListener("click", () => sort(table, button.closest("th")));
    }
  }

  // Filters and columns of a leaderboard
  for (const board of document.querySelectorAll(".board")) {
    const table = board.querySelector("table");
    const find = board.querySelector(".find");
    const family = board.querySelector(".family");
    const filter = () => {
      const text = find.value.trim().toLowerCase();
      const at = family.value.indexOf(":");
      const [kind, wanted] = [family.value.slice(0, Math.max(at, 0)), family.value.slice(at + 1)];
      let shown = 0;
      for (const body of table.tBodies) {
        const fits = body.dataset.method.toLowerCase().includes(text)
          && (kind === "" || body.dataset[kind] === wanted);
        body.hidden = !fits;
        shown += fits;
      }
      say(`${shown} of ${table.tBodies.length} methods shown`);
    };
    board.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    find.addEventListener("input", filter);
    family.addEventListener("change", filter);
    for (const box of board.querySelectorAll(".toggle")) {
      const apply = () => table.classList.toggle(box.dataset.class, box.checked);
      box.addEventListener("change", apply);
      apply(); // a browser may restore boxes when the page is loaded again
    }
    if (find.value || family.value) filter();
  }

  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.provenance")) details.open = true;
  });
})();
