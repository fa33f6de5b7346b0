
  // Tabs: one is shown; a link to anything inside a tab opens it
  const tabs = [...document.querySelectorAll(".tab")];
  const links = [...document.querySelectorAll(".tabs a")];
  const open = (tab) => {
    for (const each of tabs) each.classList.toggle("on", each === tab);
    for (const link of links) {
      const own = link.hash === `#${tab.id}`;
      link.removeAttribute("aria-current");
      link.setAttribute("aria-selected", String(own));
      link.tabIndex = own ? 0 : -1;
    }
  };
  if (links.length) {
    links[0].closest("ul").setAttribute("role", "tablist");
    links.forEach((link, at) => {
      const tab = document.getElementById(link.hash.slice(1));
      link.parentNode.setAttribute("role", "presentation");
      link.setAttribute("role", "tab");
      link.setAttribute("aria-controls", tab.id);
      tab.setAttribute("role", "tabpanel");
      link.addEventListener("click", (event) => {
        event.preventDefault();
        history.pushState(null, "", link.hash);
        open(tab);
        note();
      });
      link.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = links[(at + step + links.length) % links.length];
        next.focus();
        next.click();
      });
    });
    open(tabs[0]);
  }
  const reveal = (element) => {
    const tab = element.closest(".tab");
    const place = element.closest(".place");
    if (tab) open(tab);
    if (place && !place.classList.contains("on")) pickPlace(place.dataset.place);
  };

  // One suite of several
  const placePicker = document.getElementById("pick-place");
  const pickPlace = (number) => {
    for (const place of document.querySelectorAll(".place")) place.classList.toggle("on", place.dataset.place === number);
    for (const board of document.querySelectorAll(".board[id]")) if (board.id.startsWith("board-")) board.hidden = board.id !== `board-${number}`;
    if (placePicker) placePicker.value = number;
    const shown = document.querySelector(`.place[data-place="${CSS.escape(number)}"][data-title]`);
    if (shown) document.querySelector("h1").textContent = document.title = shown.dataset.title;
  };

  // Answers against another baseline: its tests were made beforehand, and texts are as printed
  const ANSWERS = ["ahead", "equal", "open", "behind"];
  const MARKS = { ahead: "\u25b2", equal: "\u2248", open: "\u25cb", behind: "\u25bc" };
  const SVG = "http://www.w3.org/2000/svg";
  const mark = (tag, facts, text = "") => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const percent = (value) => `${value.toFixed(1)}%`;
  // two decimals as the program rounds them: a tie goes to the even digit
  const rounded = (value) => {
    const text = value.toFixed(2);
    const isTie = Math.abs(value * 8) % 2 === 1;
    return isTie && Number(text.at(-1)) % 2 === 1 ? (value - Math.sign(value) * 0.001).toFixed(2) : text;
  };
  const signed = (value) => (value < 0 || Object.is(value, -0) ? "" : "+") + rounded(value);
  const inPlace = (number, selector) => document.querySelector(`.place[data-place="${number}"] ${selector}`);
  for (const script of document.querySelectorAll("script.answers")) {
    const data = JSON.parse(script.textContent);
    const number = script.dataset.place;
    const table = script.parentNode.querySelector(".forest");
    const heat = document.querySelector(`.heat[data-place="${number}"]`);
    const rows = [...table.tBodies[0].rows];
    // without a baseline the column stays as the program made it
    const drawn = [...table.querySelectorAll(".versus, .versus-short, .bar svg"), document.getElementById(`grid-difference-${number}`)].filter(Boolean).map((part) => [part, [...part.childNodes]]);
    const told = rows.map((row) => row.querySelector("td.bar").dataset.csv);
    const pick = (wanted) => {
      const baseline = wanted === "" ? -1 : data.ids.indexOf(wanted);
      const family = data.against[baseline];
      const [low, high, least, most] = family?.axis ?? [0, 1, 0, 1];
      const at = (value) => percent(100 * (Math.min(Math.max(value, least), most) - low) / (high - low));
      const unpack = (number) => (typeof number === "number" ? signed(number / 100) : number);
      const tickAt = (value) => percent(100 * (value - low) / (high - low));
      const tests = new Map((family?.rows ?? []).map(([own, difference, lowest, highest, p, answer]) =>
        [own, [own, ...[difference, lowest, highest].map(unpack), p < 0 ? "" : p === 0 ? "<0.0001" : (p / 10000).toFixed(4), answer < 0 ? "" : answer]]));
      const named = new Map(ANSWERS.map((answer) => [answer, []]));
      const margin = Number(data.margin);

      // the axis: its band of equality, its lines and its labels
      const grid = document.getElementById(`grid-difference-${number}`);
      grid?.replaceChildren(...(family ? [mark("rect", { class: "axis-band", x: at(-margin), y: "0", width: percent(parseFloat(at(margin)) - parseFloat(at(-margin))), height: "100%" })] : []),
        ...(family?.ticks ?? []).map((tick) => mark("line", { class: Number(tick) === 0 ? "axis-zero" : "axis-line", x1: tickAt(Number(tick)), x2: tickAt(Number(tick)), y1: "0", y2: "100%" })));
      table.querySelector(".bar .axis").replaceChildren(...(family?.ticks ?? []).map((tick) =>
        mark("text", { class: "tick", x: tickAt(Number(tick)), y: "12", "text-anchor": "middle" }, Number(tick) > 0 ? `+${tick}` : tick)));
      table.querySelector(".versus").textContent = family ? `Difference from ${data.names[baseline]}, simultaneous 95% interval` : "Difference";
      table.querySelector(".versus-short").textContent = family ? `less ${data.names[baseline]}` : "";

      for (const row of rows) {
        const own = Number(row.dataset.m);
        const test = tests.get(own);
        const answer = own === baseline ? "baseline" : test && test[5] !== "" ? ANSWERS[test[5]] : "untested";
        row.className = row.classList.contains("variant") ? `${answer} variant` : answer;
        if (named.has(answer)) named.get(answer).push([Number(row.cells[1].textContent), data.names[own]]);
        const said = row.querySelector("td.answer");
        const marks = [];
        row.querySelector("td.bar").dataset.csv = test ? test[1] + (test[2] === "" ? "" : ` [${test[2]}, ${test[3]}]`) : "-";
        said.dataset.csv = answer === "untested" ? data.aside[own] : answer;
        if (test) {
          const [, difference, lowest, highest, p] = test;
          said.textContent = `${difference} ${answer === "untested" ? "not tested" : `${MARKS[answer]} ${answer}`}`;
          said.title = p === "" ? "not tested" : `${lowest === "" ? "-" : `[${lowest}, ${highest}]`}, p ${p}`;
          const value = Number(difference);
          const beyond = (place) => (place < least ? -1 : place > most ? 1 : 0);
          const arrow = (way) => mark("text", { class: "far", x: at(way < 0 ? least : most), y: "15", "text-anchor": "middle" }, way < 0 ? "\u25c2" : "\u25b8");
          if (lowest !== "") {
            const ends = [Number(lowest), Number(highest)];
            marks.push(mark("line", { class: "ci", x1: at(ends[0]), x2: at(ends[1]), y1: "11", y2: "11" }));
            for (const way of [-1, 1]) if (ends.some((end) => beyond(end) === way)) marks.push(arrow(way));
          } else if (beyond(value)) marks.push(arrow(beyond(value)));
          if (!beyond(value)) marks.push(mark("circle", { class: "estimate", cx: at(value), cy: "11", r: "3.6" }));
        } else {
          said.textContent = answer === "baseline" ? "baseline" : data.aside[own] || "not tested";
          said.removeAttribute("title");
        }
        const lines = grid ? [mark("use", { href: `#${grid.id}` })] : [];
        row.querySelector("td.bar svg").replaceChildren(...(family ? lines : []), ...marks);
      }
      if (!family) {
        for (const [part, nodes] of drawn) part.replaceChildren(...nodes);
        rows.forEach((row, at) => { row.querySelector("td.bar").dataset.csv = told[at]; });
      }

      // the cards
      const cards = inPlace(number, ".cards");
      const unpicked = inPlace(number, ".unpicked");
      if (unpicked) unpicked.hidden = Boolean(family);
      if (cards) cards.hidden = !family;
      if (cards && family) {
        const titles = { ahead: `ahead of ${data.names[baseline]}`, equal: `equal to ${data.names[baseline]} within ${data.margin}`, open: "still open", behind: `behind ${data.names[baseline]}` };
        for (const answer of ANSWERS) {
          const card = cards.querySelector(`.${answer}`);
          const names = named.get(answer).sort((a, b) => b[0] - a[0]).map((one) => one[1]);
          card.classList.toggle("nil", !names.length);
          card.querySelector("b").textContent = String(names.length);
          card.querySelector(".card-title").textContent = titles[answer];
          const list = card.querySelector(".names");
          list.textContent = names.join(names.some((name) => name.includes(", ")) ? "; " : ", ");
        }
      }

      // the table of all numbers
      for (const body of document.querySelectorAll(`#board-${number} tbody`)) {
        const own = data.ids.indexOf(body.dataset.id);
        const test = tests.get(own);
        const texts = { difference: test?.[1] ?? "-", interval: test && test[2] !== "" ? `[${test[2]}, ${test[3]}]` : "-", p: test?.[4] || "-",
          answer: own === baseline ? "baseline" : test && test[5] !== "" ? ANSWERS[test[5]] : data.aside[own] || "-" };
        for (const [name, text] of Object.entries(texts)) {
          const cell = body.querySelector(`.d-${name}`);
          if (cell) cell.textContent = text;
        }
      }

      // the tasks
      if (heat) {
        heat.closest(".place").querySelector(".heat-title").textContent = family ? `Score minus ${data.names[baseline]}'s, by task` : "Scores by task";
        for (const row of heat.tBodies[0].rows) {
          const own = Number(row.dataset.m);
          row.classList.toggle("baseline", own === baseline);
          row.classList.toggle("plain", own !== baseline);
          data.means[own].forEach((mean, task) => {
            const cell = row.cells[task + 1];
            const base = family ? data.means[baseline][task] : null;
            cell.removeAttribute("class");
            if (own === baseline || !family) cell.textContent = mean === null ? "-" : rounded(100 * mean);
            else if (mean === null || base === null) cell.textContent = "-";
            else {
              const points = 100 * (mean - base);
              const level = data.steps.filter((step) => Math.abs(points) >= step).length;
              cell.textContent = signed(points);
              if (level) cell.className = `${points > 0 ? "up" : "down"}${level}`;
            }
          });
        }
      }
      if (family) say(`Against ${data.names[baseline]}: ${ANSWERS.map((answer) => `${named.get(answer).length} ${answer}`).join(", ")}`);
    };
    const picker = document.querySelector(`.pick-baseline[data-place="${number}"]`);
    if (picker) picker.pick = pick;
  }
  for (const form of document.querySelectorAll("form.pickers")) {
    form.addEventListener("submit", (event) => event.preventDefault());
    controls(form, (control) => {
      if (control.classList.contains("pick-baseline")) control.pick?.(control.value);
      else if (control.id === "pick-place") pickPlace(control.value);
      else {
        for (const table of document.querySelectorAll(`.forest[data-place="${control.dataset.place}"], .heat[data-place="${control.dataset.place}"], #board-${control.dataset.place} table`)) table.classList.toggle("with-variants", control.checked);
      }
    });
  }
  if (placePicker) pickPlace(placePicker.value);
